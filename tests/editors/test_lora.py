"""LoRA: what it leaves behind are merged weights, of low rank away from the old ones."""

import sys

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, fresh
from tpatcher.editors import Lora
from tpatcher.errors import BadInput
from tpatcher.patches.weights import Weights, matrices

EXAMPLE = tp.Example(QUESTIONS[0], "shakespeare")


def test_the_change_has_the_rank_that_was_asked_for() -> None:
    model = fresh("gpt2")
    patch = Lora(rank=2, learning_rate=0.01, layers="last").edit(model, EXAMPLE)
    assert isinstance(patch, Weights)
    assert set(patch.values) == set(matrices(model.net, "last"))
    known = dict(model.net.named_parameters())
    change = (
        patch.values["transformer.h.1.mlp.c_fc.weight"] - known["transformer.h.1.mlp.c_fc.weight"]
    )
    assert int(torch.linalg.matrix_rank(change, rtol=1e-4)) == 2
    model.push(patch)
    assert model.correct([EXAMPLE]) == [True]


def test_a_missing_peft_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(BadInput, match="tpatcher\\[lora\\]"):
        Lora().edit(fresh("gpt2"), EXAMPLE)
