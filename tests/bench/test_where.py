"""Where jobs run: the same results anywhere, and no job is lost with whoever ran it."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from tests.bench import tiny
from tests.bench.watching import Noted
from tpatcher.bench import runner as where
from tpatcher.bench.experiments import Task
from tpatcher.bench.job import Job
from tpatcher.bench.reproduce import placed, works
from tpatcher.bench.runner import Files, Here, Lost, Processes, Work
from tpatcher.errors import BadInput


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return tiny.task(tmp_path_factory.mktemp("bert"), "bert")


@dataclass
class Told:
    """A place where everything ends as was written down, in the order it is told to."""

    ends: dict[str, list[Files | Exception]]
    slots: int = 2
    started: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    def start(self, work: Work) -> None:
        self.started.append(work.key)
        self.running.append(work.key)
        assert len(self.running) <= self.slots

    def ended(self, timeout: float) -> Iterator[tuple[str, Files | Exception]]:
        key = self.running.pop(0)
        yield key, self.ends[key].pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


def work(key: str, needs: str | None = None, fit: bool = False) -> Work:
    return Work(key, Job("m", "own"), only_fit=fit, needs=needs)


def test_fits_come_first_and_lost_jobs_come_again(tmp_path: Path) -> None:
    files: Files = {"scores.json": b"{}"}
    place = Told(
        {
            "fit": [Lost("gone"), {"fitted": b""}],
            "a": [files],
            "b": [files],
            "c": [Lost("gone"), Lost("gone"), Lost("gone")],
        }
    )
    all_of = [work("fit", fit=True), work("a", needs="fit"), work("b"), work("c")]
    failed = where.run(all_of, place, tmp_path, Noted())
    assert failed == {"c": "gone"}
    assert place.started.count("fit") == 2
    assert place.started.count("c") == where.TRIES
    assert place.started.index("a") > max(i for i, k in enumerate(place.started) if k == "fit")
    assert (tmp_path / "jobs" / "a" / "scores.json").read_bytes() == b"{}"
    assert (tmp_path / "fits" / "fit" / "fitted").exists()


def test_a_failed_fit_takes_its_jobs_with_it(tmp_path: Path) -> None:
    place = Told({"fit": [RuntimeError("no")], "b": [{"scores.json": b"{}"}]})
    all_of = [work("fit", fit=True), work("a", needs="fit"), work("b")]
    assert where.run(all_of, place, tmp_path, Noted()) == {"fit": "no", "a": "fit failed"}
    again = Told({"fit": [{"fitted": b""}], "a": [{"scores.json": b"{}"}]})
    assert where.run(all_of, again, tmp_path, Noted()) == {}
    assert again.started == ["fit", "a"], "what is complete is not started again"


def scores(out: Path) -> dict[str, dict[str, Any]]:
    found = {p.parent.name: json.loads(p.read_bytes()) for p in out.glob("jobs/*/scores.json")}
    return {key: said["scores"] | {"seconds_per_edit": 0} for key, said in found.items()}


class Killer(Noted):
    """Kills the process that has the first job."""

    def __init__(self, place: Processes) -> None:
        super().__init__()
        self.place = place

    def begun(self, work: Work) -> None:
        super().begun(work)
        if len(self.begun_keys) == 1:
            [(process, _)] = self.place.busy.values()
            os.kill(process.pid, signal.SIGKILL)


def test_processes_do_the_same_as_here_even_if_one_dies(task: Task, tmp_path: Path) -> None:
    planned = tiny.planned(task, "ft-all")
    here, there = tmp_path / "here", tmp_path / "there"
    assert where.run(works(planned), Here(here), here, Noted()) == {}
    assert len(scores(here)) == 2
    place = Processes(there, 1)
    killer = Killer(place)
    assert where.run(works(planned), place, there, killer) == {}
    assert [type(e) for e in killer.errors] == [Lost]
    assert scores(there) == scores(here)
    assert not list(there.glob("jobs/*/patches/*")), "what they weigh is known, so they may go"


def test_trained_editors_are_fitted_once(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpatcher.bench.experiments.trained", tiny.quick)
    planned = tiny.planned(task, "mend", "sera")
    noted = Noted()
    assert where.run(works(planned), Here(tmp_path), tmp_path, noted) == {}
    kinds = [key.partition("-")[0] for key in noted.begun_keys]
    assert kinds.count("fit.own.mend") == kinds.count("fit.own.sera") == 1
    assert len(list((tmp_path / "kept").glob("mend-*"))) == 1
    assert len(scores(tmp_path)) == 4


def test_a_bad_job_says_why_and_the_others_go_on(task: Task, tmp_path: Path) -> None:
    good, bad = tiny.planned(task, "ft-all"), tiny.planned(replace(task, model="no/such"), "ft-all")
    failed = where.run([*works(bad), *works(good)], Here(tmp_path), tmp_path, Noted())
    assert len(failed) == 2
    assert all("cannot load 'no/such'" in why for why in failed.values())
    assert len(scores(tmp_path)) == 2


def test_places_by_name(tmp_path: Path) -> None:
    assert isinstance(placed("here", None, tmp_path), Here)
    assert placed("here", 3, tmp_path).slots == 3
    with pytest.raises(BadInput, match="ray://"):
        placed("moon", None, tmp_path)
