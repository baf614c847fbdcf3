"""On a real Ray cluster of this machine: one worker is killed in the middle, nothing is lost."""

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

from tests.bench import tiny
from tests.bench.watching import Noted
from tpatcher.bench import runner
from tpatcher.bench.executors import Inline, executor_for
from tpatcher.bench.table import Planned

pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # each of Ray's workers imports Torch and Transformers anew


def workers() -> list[int]:
    """The processes that run a job right now, of the cluster that this test began."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(b"ray::Worker") and mine(process):
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


def kill_one(out: Path, killed: list[int], ended: Event) -> None:
    """Wait until a job has made a step, and kill whoever is at work."""
    while not killed and not ended.is_set():
        begun = any(f.read_bytes().count(b"\n") > 1 for f in out.glob("jobs/*/steps.jsonl"))
        for pid in workers()[:1] if begun else []:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        sleep(0.01)


def numbers(plan: list[Planned], out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in (row for planned in plan for row in planned.read(out).rows):
        assert len(row.results) == row.expected
        measured = ("seconds", "megabytes")  # on this machine, never twice the same
        yield row.row.name, {k: v for k, v in row.numbers.items() if k not in measured}


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    scale = replace(tiny.SCALE, edits={"fc": 5, "qa": 5})
    plan = tiny.plan(tiny.setup(tmp_path, "bert"), "t-patcher-fast", scale=scale)
    here, there = tmp_path / "here", tmp_path / "there"
    assert runner.run(runner.works(plan), Inline(here), here, Noted()) == {}
    noted, killed, ended = Noted(), list[int](), Event()
    killer = Thread(target=kill_one, args=(there, killed, ended))
    executor = executor_for("ray", 2, there)
    killer.start()
    try:
        assert runner.run(runner.works(plan), executor, there, noted) == {}
    finally:
        ended.set()
        killer.join()
    assert killed
    assert noted.errors
    assert dict(numbers(plan, there)) == dict(numbers(plan, here))
