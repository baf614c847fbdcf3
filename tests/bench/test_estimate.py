"""How long jobs will take, from a few steps of each."""

from dataclasses import replace
from typing import Any

import pytest

from tests.bench import tiny
from tpatcher.bench import estimate as estimating
from tpatcher.bench.estimate import estimate
from tpatcher.bench.runner import works
from tpatcher.bench.setup import Setup
from tpatcher.editors import EDITORS


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return tiny.setup(tmp_path_factory.mktemp("bert"), "bert")


def test_every_kind_of_work_is_measured(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EDITORS["mend"], "SMALL", tiny.quick("mend"))
    todo = works(tiny.plan(setup, "mend", "ft-last", "t-patcher", "t-patcher-fast", "cache"))
    found = estimate(todo)
    assert set(found) == {work.key for work in todo}
    assert all(seconds >= 0 for seconds in found.values())
    assert sum(found.values()) > 0


def test_a_fit_costs_its_steps(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which a training step takes two seconds, and all else none."""
    now = [0.0]
    fit: Any = EDITORS["mend"].fit

    def timed(self: Any, *words: Any, **named: Any) -> Any:
        now[0] += 2 * self.steps
        return fit(self, *words, **named)

    monkeypatch.setattr(estimating, "perf_counter", lambda: now[0])
    monkeypatch.setattr(EDITORS["mend"], "fit", timed)
    monkeypatch.setattr(EDITORS["mend"], "SMALL", {**tiny.quick("mend"), "steps": 700})
    [work, *_] = works(tiny.plan(setup, "mend"))
    assert work.only_fit
    assert estimate([work]) == {work.key: pytest.approx(1400)}


def test_a_job_without_an_end_counts_the_mistakes_that_f0_makes(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating.Sample, "_edit", lambda *_: (10.0, None))
    monkeypatch.setattr(estimating.Sample, "answer", 0.0)
    monkeypatch.setattr(estimating.Sample, "share_wrong", 0.5)
    for edits, folders, seconds in ((3, 2, 30), (None, 0, 60), (None, 2, 30)):
        [_, work, *_] = works(tiny.plan(setup, "t-patcher-fast"))
        work = replace(work, job=replace(work.job, edits=edits, folders=folders))
        assert estimate([work]) == {work.key: pytest.approx(seconds)}
