"""Fixes that read the text are solved again before they are baked."""

from dataclasses import replace
from pathlib import Path

import pytest

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.checkpoints.bake import bake
from tpatcher.checkpoints.by_position import by_position
from tpatcher.editors.tpatcher import solver
from tpatcher.errors import NotExported


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_the_same_is_right_and_a_stock_checkpoint_holds_it(name: str, tmp_path: Path) -> None:
    model = fresh(name)
    answers = ("maybe", "no") if name == "bert" else ("paris", "a red bird")
    text = "what is the river of rome ?"
    wanted = next(a for a in answers if a != model.answer([text])[0])
    example = tp.Example(text, wanted, rephrasings=("the river of rome is what ?",))
    editor = tp.TPatcher(solver("text")).fit(model, TEXTS)
    model.push(editor.edit(model, replace(example, rephrasings=())))
    model.set_patches([replace(p, example=example) for p in model.patches])
    assert editor.memory is not None
    said = model.answer(TEXTS)
    solved = by_position(model, editor.memory)
    assert (solved.again, solved.rephrasings) == (1, 1)
    assert solved.model.correct([example]) == [True]
    assert solved.model.answer(TEXTS) == said
    assert bake(solved.model, tmp_path / "out") < 1e-4


def test_a_fix_without_its_text_is_named() -> None:
    model = fresh("bert")
    text = "what is the river of rome ?"
    wanted = next(a for a in ("maybe", "no") if a != model.answer([text])[0])
    editor = tp.TPatcher(solver("text")).fit(model, TEXTS)
    patch = replace(editor.edit(model, tp.Example(text, wanted)), example=None)
    model.push(patch)
    assert editor.memory is not None
    with pytest.raises(NotExported, match=patch.id):
        by_position(model, editor.memory)
