"""Neurons: what is no patch, and a patch for a layer of another width."""

from dataclasses import replace

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import ASKED, RIGHT, TEXTS, edited, fresh
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.errors import WrongBase
from tpatcher.patches import from_bytes
from tpatcher.patches.neurons import Neurons


def test_tensors_that_do_not_fit_each_other_are_refused() -> None:
    patch = edited("bert")[1][0]
    n, d = patch.keys.shape
    with pytest.raises(ValueError, match=r"bias has shape"):
        replace(patch, bias=torch.zeros(n + 1))
    with pytest.raises(ValueError, match=r"values has shape"):
        replace(patch, values=torch.zeros(n, d + 1))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    patch = edited("bert")[1][0]
    with pytest.raises(ValueError, match="values holds NaN or infinity"):
        replace(patch, values=torch.full_like(patch.values, bad))


def test_a_layer_of_another_width_is_refused() -> None:
    wide = tp.Model(zoo.net("bert", hidden_size=64), zoo.tokenizer("classify"), "classify")
    with pytest.raises(WrongBase, match="keys of width 32"):
        wide.push(edited("bert")[1][0])
    assert wide.patches == ()


def test_keys_that_read_texts_otherwise_are_refused() -> None:
    model = fresh("bert")
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    answer = next(a for a in RIGHT["classify"] if a != model.answer(ASKED[:1])[0])
    patch = editor.edit(model, tp.Example(ASKED[0], answer))
    assert isinstance(patch, Neurons) and patch.reads_text
    back = from_bytes(patch.to_bytes())
    assert isinstance(back, Neurons) and back.reading == patch.reading
    with pytest.raises(WrongBase, match="read texts otherwise"):
        model.push(replace(patch, reading=patch.reading - 1))
    narrow = edited("bert")[1][0]
    fresh("bert").push(replace(narrow, reading=1))  # it reads no text


def test_a_patch_keeps_tensors_of_its_own() -> None:
    patch = edited("bert")[1][0]
    values = patch.values.clone()
    copy = replace(patch, values=values)
    values.zero_()
    assert torch.equal(copy.values, patch.values)
