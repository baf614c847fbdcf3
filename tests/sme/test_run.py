"""Sequential model editing: the metrics by hand, and the cache against the slow loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, fresh, stream_of
from tpatcher import probes, sme
from tpatcher.data.split import Split
from tpatcher.editors import make
from tpatcher.editors.base import Editor
from tpatcher.errors import NotFixed
from tpatcher.models.retention import AnswerCache
from tpatcher.patches.base import Patch


class Table:
    """Stands for a model: a dict of answers."""

    name, patches, is_cacheable = "table", (), False
    task = SimpleNamespace(generates=True)

    def __init__(self, said: dict[str, str]) -> None:
        self.said = dict(said)
        self.base = type("Base", (), {"fingerprint": "0"})
        self.net = type("Net", (), {"parameters": lambda self: [], "device": torch.device("cpu")})()
        self.net.parameters = lambda: [type("P", (), {"numel": lambda self: 100})()]

    def answer(self, texts: Sequence[str]) -> list[str]:
        return [self.said[t] for t in texts]

    def correct(self, examples: Sequence[tp.Example]) -> list[bool]:
        return [e.accepts(self.said[e.text]) for e in examples]

    def accepts(self, example: tp.Example, answer: str) -> bool:
        return example.accepts(answer)

    def twin(self) -> "Table":
        return Table(self.said)

    def push(self, patch: Any) -> None:
        self.said.update(patch.changes)


@dataclass(frozen=True)
class Change:
    changes: dict[str, str]
    id: str = "x"


@dataclass
class Told(Editor):
    """Answers each mistake with a change that was written down beforehand."""

    name: ClassVar[str] = "told"
    changes: dict[str, dict[str, str]] = field(default_factory=dict)

    def fit(self, model: tp.Model, examples: Sequence[str | tp.Example]) -> Self:
        return self

    def edit(self, model: Any, example: tp.Example, *, supersede: bool = False) -> Patch:
        if example.text not in self.changes:
            raise NotFixed("nothing written down")
        return Change(self.changes[example.text])  # type: ignore[return-value]

    def solve(self, model: tp.Model, example: tp.Example) -> Patch:
        raise AssertionError


class Plain:
    """AnswerCache without a cache."""

    usable, trace = False, None

    def __init__(self, model: Any, examples: Sequence[tp.Example], known: Any = None) -> None:
        self.examples = list(examples)
        self.right_before = model.correct(self.examples)

    def add(self, example: tp.Example, patch: Any) -> None:
        self.examples.append(example)

    def correct(self, model: Any) -> list[bool]:
        return model.correct(self.examples)  # type: ignore[no-any-return]


def test_the_five_metrics_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six examples: a and d are right; b is fixed; c undoes b; e stays wrong; f is never fixed."""
    monkeypatch.setattr(sme, "AnswerCache", Plain)
    monkeypatch.setattr(probes, "AnswerCache", Plain)
    stream = [
        tp.Example("a", "1"),
        tp.Example("b", "1", rephrasings=("b1", "b2")),
        tp.Example("c", "1", rephrasings=("c1",)),
        tp.Example("d", "1"),
        tp.Example("e", "1"),  # no rephrasings: left out of GR
        tp.Example("f", "1", rephrasings=("f1",)),
    ]
    said = dict.fromkeys(["a", "d", "t1", "t2", "u1", "u2", "u3"], "1")
    said |= dict.fromkeys(["b", "b1", "b2", "c", "c1", "e", "f", "f1", "u4"], "0")
    changes = {
        "b": {"b": "1", "b1": "1"},
        "c": {"c": "1", "c1": "1", "b": "0", "t1": "0", "u4": "1"},
        "e": {"e": "0", "u1": "0"},
    }
    retain = {
        "train": [tp.Example(t, "1") for t in ("t1", "t2")],
        "test": [tp.Example(t, "1") for t in ("u1", "u2", "u3", "u4")],
    }
    steps = list(sme.run(Table(said), Told(changes=changes), stream, retain, every=1))  # type: ignore[arg-type]
    assert [s.text for s in steps] == ["b", "c", "e", "f"]
    assert [s.fixed for s in steps] == [True, True, False, False]
    assert [s.retained["edits"] for s in steps] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert [s.retained["train"] for s in steps] == [(2, 2), (1, 2), (1, 2), (1, 2)]
    assert steps[-1].error == "nothing written down"
    scores = sme.score(steps, mistakes=4)
    assert scores.SR == 2 / 4
    assert scores.GR == 2 / 4  # b1 and c1 of b1, b2, c1, f1
    assert scores.ER == 1 / 4
    assert scores.TrainR == 1 / 2
    assert scores.TestR == 3 / 3  # u4 gained, u1 lost
    assert (scores.E, scores.N) == (4, 4)


def test_probes_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe is kept if it is answered as before, or rightly; others tell nothing."""
    monkeypatch.setattr(sme, "AnswerCache", Plain)
    monkeypatch.setattr(probes, "AnswerCache", Plain)
    said = dict.fromkeys(["a", "b", "same", "gone", "won", "unknown", "far"], "0") | {"fix": "1"}

    def sister(text: str, answer: str) -> tp.Example:
        return tp.Example(text, answer, kind="sisters")

    asked_of_a = (
        sister("same", "3"),  # wrong before and after
        sister("gone", "0"),  # was right
        sister("unknown", ""),
        sister("fix", "0"),  # f0 says what the fix says
        sister("b", "3"),  # is fixed itself later on
        tp.Example("far", "5"),
    )
    stream = [
        tp.Example("a", "1", unrelated=asked_of_a),
        tp.Example("b", "1", unrelated=(sister("won", "2"), tp.Example("far", "5"))),
    ]
    changes = {
        "a": {"a": "1", "gone": "1", "unknown": "1", "fix": "2"},
        "b": {"b": "1", "won": "2", "far": "1"},
    }
    steps = list(sme.run(Table(said), Told(changes=changes), stream, every=1))  # type: ignore[arg-type]
    assert [s.retained["sisters"] for s in steps] == [(2, 4), (2, 4)]  # b leaves, won comes
    assert [s.retained["neighbours"] for s in steps] == [(1, 1), (0, 1)]
    scores = sme.score(steps)
    assert (scores.Sisters, scores.Neighbours, scores.Negations) == (0.5, 0.0, None)
    found = sme.summary([steps, [replace(steps[0], retained={"sisters": (4, 4)})]])
    assert found["Sisters"] == (0.75, 0.25)
    assert "Negations" not in found


def test_no_mistake_no_steps() -> None:
    assert sme.score([]).SR == 1.0


def test_summary_pools_sr_and_gr_and_averages_the_rest() -> None:
    def step(fixed: bool, right: list[bool], edits: tuple[int, int]) -> sme.Step:
        return sme.Step(0, "", "", "", fixed, right, 1, 0.1, 1.0, "x", None, {"edits": edits})

    runs = [
        [step(True, [True, True], (1, 1))],
        [step(False, [False], (1, 2)), step(True, [], (1, 2))],
    ]
    found = sme.summary(runs)
    assert found["SR"] == (2 / 3, 0.0)
    assert found["GR"] == (2 / 3, 0.0)
    assert found["ER"] == (0.75, 0.25)
    assert "TrainR" not in found, "nothing was asked"
    assert sme.summary([[step(True, [], (1, 1))]]).keys() == {"SR", "ER", "E", "seconds_per_edit"}
    assert sme.summary([[], []])["E"] == (0, 0)


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_cached_retention_equals_the_slow_loop(name: str) -> None:
    model = fresh(name)
    said = model.answer(TEXTS)
    half = len(TEXTS) // 2
    retained = [tp.Example(t, a) for t, a in zip(TEXTS, said, strict=True)]
    editor = tp.TPatcher().fit(model, TEXTS[:half])
    stream = stream_of(model)
    steps = list(
        sme.run(model, editor, stream, {"train": retained[:half], "test": retained[half:]}, every=1)
    )
    slow, done = fresh(name), []
    for step in steps:
        slow.push(editor.edit(slow, tp.Example(step.text, step.answer)))
        example = stream[step.index]
        done.append(example)
        assert step.fixed == slow.correct([example])[0]
        assert step.rephrasings == slow.correct(
            [tp.Example(example.rephrasings[0], example.answer)]
        )
        assert step.retained["edits"] == (sum(slow.correct(done)), len(done))
        assert step.retained["train"] == (sum(slow.correct(retained[:half])), half)
        assert step.retained["test"] == (sum(slow.correct(retained[half:])), half)
    assert len(steps) > 5
    assert all(s.fixed for s in steps)
    assert steps[-1].growth > 0


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
@pytest.mark.parametrize("kind", ["t-patcher", "cache"])
def test_cached_probes_equal_the_slow_loop(name: str, kind: str) -> None:
    model, slow = fresh(name), fresh(name)
    draw = Random(1)
    answers = model.answer(TEXTS)
    stream = [
        replace(
            e,
            text=e.text.replace("what is", "it is"),
            unrelated=tuple(
                tp.Example(TEXTS[i], answers[i], kind=draw.choice(["sisters", ""]))
                for i in draw.sample(range(len(TEXTS)), 4)
            ),
        )
        for e in stream_of(model)
    ]
    editor = make(kind).fit(model, TEXTS[:5])
    steps = list(sme.run(model, editor, stream, every=2))
    asked: dict[str, tuple[str, str]] = {}  # text: kind, what f0 says
    f0 = fresh(name)
    for i, (step, patch) in enumerate(zip(steps, model.patches, strict=True), 1):
        slow.push(patch)
        example = stream[step.index]
        texts = {e.text: e.kind or "neighbours" for e in example.unrelated}
        if name == "bert":
            texts[example.text.replace(" is ", " is not ")] = "negations"
        for text, its_kind in texts.items():
            said = f0.answer([text])[0]
            if text not in asked and not example.accepts(said):
                asked[text] = its_kind, said
        if not step.retained:
            assert i % 2
            continue
        for metric in {k for k, _ in asked.values()}:
            mine = {t: said for t, (k, said) in asked.items() if k == metric}
            now = slow.answer(list(mine))
            same = [a == said for a, said in zip(now, mine.values(), strict=True)]
            assert step.retained[metric] == (sum(same), len(mine))
    assert len(steps) > 5
    assert ("negations" in steps[-1].retained) == (name == "bert")


def test_rephrasings_can_be_shown_to_the_editor() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    steps = list(sme.run(model, editor, stream_of(model)[:4], shown_rephrasings=1))
    assert all(s.rephrasings == [] for s in steps)
    assert all(p.example and p.example.rephrasings for p in model.patches)


def test_folders_cover_the_edit_set() -> None:
    rows = [tp.Example(str(i), "1") for i in range(23)]
    folders = Split(train=rows, edit=rows, test=rows).folders(5)
    assert sorted(int(e.text) for f in folders for e in f) == list(range(23))
    assert {len(f) for f in folders} == {4, 5}


def test_paths_can_be_shared_by_runs() -> None:
    model = fresh("bert")
    paths = AnswerCache(
        model, [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
    )
    for _ in range(2):
        twin = model.twin()
        editor = tp.TPatcher().fit(twin, TEXTS)
        steps = list(sme.run(twin, editor, stream_of(model)[:5], {"test": paths}))
        assert steps[-1].retained["test"][1] == len(TEXTS)
