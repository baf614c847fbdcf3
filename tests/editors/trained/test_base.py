"""Training that is checked on held-out edits: the best learner is kept, and it ends in time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import tpatcher as tp
from tests.helpers import QUESTIONS, fresh
from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.errors import BadInput
from tpatcher.patches.cached_answer import CachedAnswer


@dataclass
class Counter(Trained):
    """Counts its steps, and is as bad at each check as it is told."""

    name: ClassVar[str] = "counter"
    scores: Sequence[float] = ()
    check_every: int = 2
    progress: bool = False

    def build(self, model: tp.Model) -> nn.Module:
        self.seen: list[TrainingEdits] = []
        return nn.ParameterDict({"count": torch.zeros(())})

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(learner.parameters(), lr=1.0)

    def loss(self, model: tp.Model, learner: Any, edits: TrainingEdits, rng: Random) -> Tensor:
        self.trained_on = edits
        return -learner["count"]

    def check(self, model: tp.Model, learner: Any, edits: TrainingEdits) -> float:
        self.seen.append(edits)
        return self.scores[round(float(learner["count"])) // self.check_every - 1]

    def solve(self, model: tp.Model, example: tp.Example) -> CachedAnswer:
        raise NotImplementedError


def steps(editor: Counter) -> float:
    return float(editor.fit(fresh("bert"), QUESTIONS).state["count"])


def test_the_best_learner_is_kept() -> None:
    assert steps(Counter(steps=8, scores=[3, 1, 2, 2])) == 4
    assert steps(Counter(steps=7, scores=[3, 2, 1, 0])) == 6, "the last step is checked too"
    assert steps(Counter(steps=2, scores=[float("nan")])) == 2


def test_training_ends_when_no_check_is_better_for_long() -> None:
    editor = Counter(steps=100, patience=4, scores=[3, 1, 2, 1, 0])
    assert steps(editor) == 4
    assert len(editor.seen) == 4, "at step 8, and not at step 10, which would be better"


def test_training_ends_when_its_seconds_are_over() -> None:
    editor = Counter(steps=100, check_every=1, seconds=0.0, scores=[1])
    assert steps(editor) == 1


def test_rates_are_multiplied_step_by_step_also_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slower(Counter):
        def rate(self, step: int) -> float:
            return 1 / 2**step

    def editor(**more: Any) -> Counter:
        return Slower(steps=4, check_every=4, scores=[0] * 9, **more)

    assert steps(editor()) == 1 + 1 / 2 + 1 / 4 + 1 / 8
    stopped = Slower(steps=4, check_every=1, scores=[4, 3, 2, 1, 0], checkpoint=tmp_path)
    monkeypatch.setattr(stopped, "check", lambda *_: -float(len(stopped.seen)))
    monkeypatch.setattr(stopped, "after_step", stop_at(2))
    with pytest.raises(KeyboardInterrupt):
        steps(stopped)
    monkeypatch.setattr(stopped, "after_step", lambda *_: None)
    scores = iter((-1.0, -2.0))
    monkeypatch.setattr(stopped, "check", lambda *_: next(scores))
    assert steps(stopped) == 1 + 1 / 2 + 1 / 4 + 1 / 8


def stop_at(step: int) -> Any:
    def after_step(learner: Any, now: int) -> None:
        if now == step:
            raise KeyboardInterrupt

    return after_step


def test_an_unfinished_training_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = Counter(steps=4, scores=[1, 1], checkpoint=tmp_path)
    monkeypatch.setattr(editor, "after_step", stop_at(2))
    with pytest.raises(KeyboardInterrupt):
        steps(editor)
    with pytest.raises(BadInput, match="is at step 2; finish it with fit"):
        Counter.load(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {"editor.safetensors", "best.safetensors"}
    steps(Counter(steps=4, scores=[1, 1], checkpoint=tmp_path))
    assert float(Counter.load(tmp_path).state["count"]) == 2
    assert {f.name for f in tmp_path.iterdir()} == {"editor.safetensors"}


def test_all_examples_are_learned_from_but_those_held_out() -> None:
    known = [tp.Example(f"who is {i} ?", "no") for i in range(20_000)]
    editor = Counter(steps=2, scores=[0], validation=50)
    editor.fit(fresh("bert"), known)
    held = {e.text for e in editor.seen[0].examples}
    learned = {e.text for e in editor.trained_on.examples}
    assert (len(held), len(learned)) == (50, 19_950)
    assert not held & learned
    editor.fit(fresh("bert"), known, QUESTIONS)
    assert [e.text for e in editor.seen[0].examples] == QUESTIONS
    assert len(editor.trained_on.examples) == 20_000
