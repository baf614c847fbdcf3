"""On a real Ray cluster of this machine: one worker is killed in the middle, nothing is lost."""

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest

from tests.bench import tiny
from tests.bench.watching import Noted
from tpatcher.bench import runner as where
from tpatcher.bench.experiments import Plan
from tpatcher.bench.reproduce import works
from tpatcher.bench.results import Sheet, sheet

pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # each of Ray's workers imports Torch and Transformers anew


def workers() -> list[int]:
    """The processes that run a job right now, of the cluster that this test began."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(b"ray::_tried") and mine(process):
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def mine(process: Path) -> bool:
    """Whether a process descends from this one: another cluster's must not be killed."""
    while process.name not in ("0", "1"):
        if int(process.name) == os.getpid():
            return True
        parent = re.search(r"^PPid:\s+(\d+)", (process / "status").read_text(), re.M)
        assert parent is not None
        process = process.with_name(parent[1])
    return False


def kill_one(out: Path, killed: list[int]) -> None:
    """Wait until a job has made a step, and kill whoever is at work."""
    end = monotonic() + 60
    while not killed and monotonic() < end:
        begun = any(f.read_bytes().count(b"\n") > 1 for f in out.glob("jobs/*/steps.jsonl"))
        for pid in workers()[:1] if begun else []:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        sleep(0.01)


def numbers(planned: Plan, out: Path) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    for name, tasks in planned.items():
        for task, rows in tasks.items():
            one: Sheet = sheet(name, task, rows, out)
            for line in one.lines:
                assert len(line.results) == line.wanted
                measured = ("seconds", "megabytes")  # on this machine, never twice the same
                kept = {k: v for k, v in line.numbers.items() if k not in measured}
                yield line.row, kept


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    scale = replace(tiny.SCALE, edits={"fc": 5, "qa": 5})
    planned = tiny.planned(tiny.task(tmp_path, "bert"), "t-patcher-fast", scale=scale)
    here, there = tmp_path / "here", tmp_path / "there"
    assert where.run(works(planned), where.Here(here), here, Noted()) == {}
    noted, killed = Noted(), list[int]()
    killer = Thread(target=kill_one, args=(there, killed))
    place = where.OnRay(there, "ray", 2)
    killer.start()
    assert where.run(works(planned), place, there, noted) == {}
    killer.join()
    assert killed
    assert any(isinstance(error, where.Lost) for error in noted.errors)
    assert dict(numbers(planned, there)) == dict(numbers(planned, here))
