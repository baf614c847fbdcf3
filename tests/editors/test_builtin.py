"""The baselines on the built-in tasks: really trained, and of the paper's shape (Table 2)."""

import random
from copy import copy
from functools import cache
from typing import Any

import pytest

import tpatcher as tp
from tpatcher.data.builtin import builtin_fc, builtin_qa, grouped
from tpatcher.data.split import Split
from tpatcher.editors import KE, Editor, FTAll, FTAllKL, FTLast, Mend, Sera, Serac
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.sme import Scores, run, score

pytestmark = pytest.mark.slow

NAMES = ("builtin-fc", "builtin-qa")
EDITS = 30
RETAINED = 500


@cache
def data(name: str) -> Split:
    return builtin_fc() if name == "builtin-fc" else builtin_qa()


@cache
def loaded(name: str) -> tp.Model:
    return tp.load(name)


@cache
def mistakes(name: str) -> list[tp.Example]:
    """Mistakes of the initial model, in any order."""
    edit = data(name).edit
    wrong = [e for e, ok in zip(edit, loaded(name).correct(edit), strict=True) if not ok]
    random.Random(0).shuffle(wrong)
    return wrong


@cache
def trained(name: str, kind: type[Editor]) -> Editor:
    knobs = {**kind.SMALL, "steps": 1000, "progress": False}  # type: ignore[attr-defined]
    return kind(**knobs).fit(loaded(name), grouped(name))


def rate(model: tp.Model, examples: list[tp.Example]) -> float:
    right = model.correct(examples)
    return sum(right) / len(right)


# of 30 answers it copies 15 after 1,000 steps and 16 after 3,000: two layers of so small a model
COPIES_BADLY = pytest.mark.xfail(reason="SERAC's counterfactual model is too small", strict=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in (Mend, KE) for name in NAMES),
        (Serac, "builtin-fc"),
        pytest.param(Serac, "builtin-qa", marks=COPIES_BADLY),
    ],
)
def test_one_edit_each(kind: type[Editor], name: str) -> None:
    """SR ≥ 0.9 and a generality well above the unedited model: they were really trained."""
    model, editor = loaded(name), trained(name, kind)
    if isinstance(editor, KE):
        editor = copy(editor)
        editor.loops = 5  # "+ loop": by itself it fixes 24 of 30 questions
    fixed, general, before = [], [], []
    for example in mistakes(name)[:EDITS]:
        asked = [tp.Example(r, example.answer, also=example.also) for r in example.rephrasings]
        before.append(rate(model, asked))
        twin = model.twin()
        twin.push(editor.edit(model, example))
        fixed.append(rate(twin, [example]))
        general.append(rate(twin, asked))
    assert sum(fixed) / len(fixed) >= 0.9
    assert sum(general) / len(general) >= sum(before) / len(before) + 0.3


@cache
def scores(name: str, editor: str) -> Scores:
    """One folder of the sequential task."""
    split, model = data(name), loaded(name).twin()
    memory = split.train[RETAINED : RETAINED + 3000]
    tuned: dict[str, Any] = {"learning_rate": 1e-4}  # the paper's 1e-5 takes ten times the steps
    made: dict[str, Any] = {
        "t-patcher": lambda: tp.TPatcher(),
        "w/o l_m": lambda: tp.TPatcher(Paper(use_lm1=False, use_lm2=False)),
        "ft-last": lambda: FTLast(**tuned),
        "ft-all": lambda: FTAll(**tuned),
        "ft-all-kl": lambda: FTAllKL(**tuned, kl_batch=32),
    }
    hyper = {"mend": Mend, "ke": KE, "sera": Sera}
    fitted = trained(name, hyper[editor]) if editor in hyper else made[editor]()
    if editor not in hyper:
        fitted.fit(model, memory)
    retain = {"train": split.train[:RETAINED], "test": split.test[:RETAINED]}
    return score(list(run(model, fitted, mistakes(name)[:EDITS], retain=retain)))


@pytest.mark.parametrize("name", NAMES)
def test_the_shape_of_the_paper(name: str) -> None:
    """Wide margins: who keeps what, and who does not."""
    ours = scores(name, "t-patcher")
    assert min(ours.SR, ours.ER, ours.TrainR, ours.TestR) >= 0.95
    tuned = scores(name, "ft-last")
    assert tuned.SR >= 0.95
    assert tuned.ER <= ours.ER - 0.05
    assert scores(name, "ft-all-kl").TrainR >= scores(name, "ft-all").TrainR - 0.01
    for collapsed in ("mend", "ke"):
        assert scores(name, collapsed).TrainR <= 0.9
    without = scores(name, "w/o l_m")
    assert without.GR >= ours.GR - 0.05
    assert without.TrainR <= ours.TrainR
    sera = scores(name, "sera")
    assert sera.SR >= 0.95
    assert sera.ER >= 0.9
