"""Running jobs in order: the same results anywhere, and no job is lost with whoever ran it."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench import tiny
from tests.bench.watching import Noted
from tpatcher.bench import runner
from tpatcher.bench.executors import Files, Inline, Process, Remote, WorkerDied, executor_for
from tpatcher.bench.job import Job, Work
from tpatcher.bench.runner import works
from tpatcher.bench.setup import Setup
from tpatcher.editors import EDITORS
from tpatcher.errors import BadInput

SCORES: Files = {"scores.json": b"{}"}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return tiny.setup(tmp_path_factory.mktemp("bert"), "bert")


class Scripted(Inline):
    """Everything ends as was written down."""

    def __init__(self, ends: dict[str, list[Files | str | WorkerDied]]) -> None:
        self.ends, self.started = ends, list[str]()

    def attempt(self, work: Work) -> Files | str:
        self.started.append(work.key)
        end = self.ends[work.key].pop(0)
        if isinstance(end, WorkerDied):
            raise end
        return end


def work(key: str, needs: str | None = None, fit: bool = False) -> Work:
    return Work(key, Job(model="m", data="own"), only_fit=fit, needs=needs)


def test_fits_come_first_and_lost_jobs_come_again(tmp_path: Path) -> None:
    executor = Scripted(
        {
            "fit": [WorkerDied("gone"), {"fitted": b""}],
            "a": [SCORES],
            "b": [SCORES],
            "c": [WorkerDied("gone"), WorkerDied("gone"), WorkerDied("gone")],
        }
    )
    all_of = [work("fit", fit=True), work("a", needs="fit"), work("b"), work("c")]
    failed = runner.run(all_of, executor, tmp_path, Noted())
    assert failed == {"c": "gone, 3 times"}
    assert executor.started.count("fit") == 2
    assert executor.started.count("c") == runner.TRIES
    last_fit = max(i for i, key in enumerate(executor.started) if key == "fit")
    assert executor.started.index("a") > last_fit
    assert (tmp_path / "jobs" / "a" / "scores.json").read_bytes() == b"{}"
    assert (tmp_path / "fits" / "fit" / "fitted").exists()


def test_a_failed_fit_takes_its_jobs_with_it(tmp_path: Path) -> None:
    executor = Scripted({"fit": ["no"], "b": [SCORES]})
    all_of = [work("fit", fit=True), work("a", needs="fit"), work("b")]
    failed = runner.run(all_of, executor, tmp_path, Noted())
    assert failed == {"fit": "no", "a": "fit failed"}
    again = Scripted({"fit": [{"fitted": b""}], "a": [SCORES]})
    assert runner.run(all_of, again, tmp_path, Noted()) == {}
    assert again.started == ["fit", "a"], "what is complete is not started again"


def scores(out: Path) -> dict[str, dict[str, Any]]:
    found = {p.parent.name: json.loads(p.read_bytes()) for p in out.glob("jobs/*/scores.json")}
    return {key: said["scores"] | {"seconds_per_edit": 0} for key, said in found.items()}


class Doomed(Process):
    """A process that is killed as soon as it has its first job, if it is the first one."""

    begun = 0

    def attempt(self, work: Work) -> Files | str:
        Doomed.begun += 1
        if Doomed.begun == 1:
            os.kill(self.pid, signal.SIGKILL)
        return super().attempt(work)


def test_processes_do_the_same_as_here_even_if_one_dies(setup: Setup, tmp_path: Path) -> None:
    todo = works(tiny.plan(setup, "ft-all"))
    here, there = tmp_path / "here", tmp_path / "there"
    assert runner.run(todo, Inline(here), here, Noted()) == {}
    assert len(scores(here)) == 2
    noted = Noted()
    executor = Remote(1, lambda _: Doomed(there, 1))
    assert runner.run(todo, executor, there, noted) == {}
    assert len(noted.errors) == 1 and "died" in noted.errors[0]
    assert scores(there) == scores(here)
    assert not list(there.glob("jobs/*/patches/*")), "what they weigh is known, so they may go"


def test_trained_editors_are_fitted_once(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mend", "sera"):
        monkeypatch.setattr(EDITORS[name], "SMALL", tiny.quick(name))
    noted = Noted()
    todo = works(tiny.plan(setup, "mend", "sera"))
    assert runner.run(todo, Inline(tmp_path), tmp_path, noted) == {}
    kinds = [key.partition("-")[0] for key in noted.begun_keys]
    assert kinds.count("fit.own.mend") == kinds.count("fit.own.sera") == 1
    assert len(list((tmp_path / "kept").glob("mend-*"))) == 1
    assert len(scores(tmp_path)) == 4
    shutil.rmtree(tmp_path / "fits")
    assert runner.missing(todo, tmp_path) == [], "no job waits for a fit any more"
    gone = next(work for work in todo if work.needs and "mend" in work.needs)
    shutil.rmtree(gone.folder(tmp_path))
    assert {w.key for w in runner.missing(todo, tmp_path)} == {gone.key, gone.needs}


def test_a_bad_job_says_why_and_the_others_go_on(setup: Setup, tmp_path: Path) -> None:
    good = works(tiny.plan(setup, "ft-all"))
    bad = works(tiny.plan(replace(setup, model="no/such"), "ft-all"))
    failed = runner.run([*bad, *good], Inline(tmp_path), tmp_path, Noted())
    assert len(failed) == 2
    assert all("cannot load 'no/such'" in why for why in failed.values())
    assert len(scores(tmp_path)) == 2


def test_executors_by_name(tmp_path: Path) -> None:
    assert isinstance(executor_for("here", None, tmp_path), Inline)
    assert isinstance(executor_for("here", 3, tmp_path), Remote)
    with pytest.raises(BadInput, match="ray://"):
        executor_for("moon", None, tmp_path)
