"""Fixes that read the text are solved again before they are baked."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

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


@pytest.mark.parametrize("name", ["bert", pytest.param("bart", marks=pytest.mark.slow)])
def test_a_graph_carries_the_state_of_the_text(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = fresh(name)
    text, answers = "what is the river of rome ?", {"bert": "maybe no", "bart": "paris lima"}
    wanted = next(a for a in answers[name].split() if a != model.answer([text])[0])
    editor = tp.TPatcher(solver("text")).fit(model, TEXTS)
    model.push(editor.edit(model, tp.Example(text, wanted)))
    assert editor.memory is not None
    stock = by_position(model, editor.memory).model
    assert bake(stock, tmp_path / "out", TEXTS[:4], onnx=True, onnx_of=model) < 1e-4
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    forced = model.task.force([text, *TEXTS[4:7]], model.task.predict(model.net, TEXTS[3:7]))
    (found,) = session.run(["logits"], {k: v.numpy() for k, v in forced.inputs.items()})
    with torch.no_grad():
        logits = model.net(**forced.inputs).logits
    assert torch.allclose(torch.from_numpy(found), logits, atol=1e-4)


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
