"""A stream of mistakes goes on whatever one of them does, and weights do not pile up."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, fresh, logits, stream_of, wrong
from tpatcher import sme
from tpatcher.editors import FTAll, FTAllKL
from tpatcher.errors import BadInput, NotFitted, NotRemovable


def test_a_text_with_two_answers_is_edited_twice_and_the_stream_goes_on() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    said = model.answer(["the dog is red"])[0]
    one, other = [label for label in ("yes", "no", "maybe") if label != said][:2]
    stream = [tp.Example("the dog is red", answer) for answer in (one, other)]
    steps = list(sme.run(model, editor, [*stream, *stream_of(model)[:3]], every=1))
    assert [s.fixed for s in steps[:2]] == [True, True]
    assert [s.retained["edits"] for s in steps[:2]] == [(1, 1), (1, 2)]  # the first is given up
    assert len(steps) > 2
    assert model.answer(["the dog is red"]) == [other]


@dataclass
class Picky(tp.TPatcher):
    """T-Patcher that cannot edit one text."""

    def solve(self, model: tp.Model, example: tp.Example) -> Any:
        if example.text == "the dog is red":
            raise BadInput("it does not like dogs")
        return super().solve(model, example)


def test_an_example_that_cannot_be_edited_is_a_failed_edit() -> None:
    model = fresh("bert")
    stream = [wrong(model, "the dog is red"), *stream_of(model)[:4]]
    steps = list(sme.run(model, Picky().fit(model, TEXTS), stream))
    assert (steps[0].fixed, steps[0].patch) == (False, None)
    assert steps[0].error == "it does not like dogs"
    assert len(steps) > 1 and all(s.fixed for s in steps[1:])
    with pytest.raises(NotFitted):  # which no other example would change
        list(sme.run(fresh("bert"), tp.TPatcher(), stream_of(model)))


def weights_held() -> int:
    """How many matrices of the size of the models' feed-forward layers are alive."""
    gc.collect()
    found = {
        t.data_ptr()
        for t in gc.get_objects()
        if type(t) in (torch.Tensor, torch.nn.Parameter) and sorted(t.shape) == [32, 48]
    }
    return len(found)


@pytest.mark.parametrize("kl", [False, True])
def test_weights_do_not_pile_up_with_the_edits(tmp_path: Path, kl: bool) -> None:
    model = fresh("bert")
    editor = (FTAllKL(learning_rate=0.01, kl_batch=4) if kl else FTAll(learning_rate=0.01)).fit(
        model, TEXTS[:20]
    )
    stream = stream_of(model)
    held, steps = [], []
    for step in sme.run(model, editor, stream, out=tmp_path, every=1, checkpoint_every=3):
        steps.append(step)
        held.append(weights_held())
    assert len(held) >= 6
    assert len(set(held)) == 1, held
    # the same as when every patch keeps its weights, bit for bit
    slow, done = fresh("bert"), []
    for step in steps:
        example = stream[step.index]
        patch = editor.edit(slow, tp.Example(example.text, example.answer))
        slow.push(patch)
        done.append(example)
        assert step.patch == patch.id
        assert step.retained["edits"] == (sum(slow.correct(done)), len(done))
    assert torch.equal(logits(model), logits(slow))
    # on disk: every third, and the newest
    sizes = [(tmp_path / "patches" / f"{s.index}.safetensors").stat().st_size for s in steps]
    whole = [i for i, size in enumerate(sizes) if size > max(sizes) / 2]
    assert whole == sorted({*range(2, len(sizes), 3), len(sizes) - 1})
    again = fresh("bert")
    assert list(sme.run(again, editor, stream, out=tmp_path, checkpoint_every=3)) == steps
    assert torch.equal(logits(again), logits(slow))
    assert [p.id for p in again.patches] == [p.id for p in slow.patches]


def test_what_let_its_weights_go_cannot_be_bared() -> None:
    model = fresh("bert")
    f0 = logits(model)
    list(sme.run(model, FTAll(learning_rate=0.01), stream_of(model)[:5]))
    assert len(model.patches) > 1
    edited = logits(model)
    with pytest.raises(NotRemovable, match="no longer holds"):
        model.pop()
    assert torch.equal(logits(model), edited)
    model.set_patches(())
    assert torch.equal(logits(model), f0)
