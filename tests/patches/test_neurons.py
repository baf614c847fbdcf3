"""Neurons: what is no patch, and a patch for a layer of another width."""

from dataclasses import replace

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import edited
from tpatcher.errors import WrongBase


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


def test_a_patch_keeps_tensors_of_its_own() -> None:
    patch = edited("bert")[1][0]
    values = patch.values.clone()
    copy = replace(patch, values=values)
    values.zero_()
    assert torch.equal(copy.values, patch.values)
