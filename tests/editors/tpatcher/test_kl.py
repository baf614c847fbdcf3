"""The KL patch: zero where nothing changes, and a patch that corrects."""

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher.kl import kl_loss
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.errors import BadInput
from tpatcher.nets.rows import Rows

EXAMPLE = tp.Example("the red dog", "paris")


def test_no_value_no_divergence() -> None:
    model = fresh("gpt2")
    memory = tp.Memory.collect(model, TEXTS)
    mistake = Mistake.find(model, EXAMPLE)
    loss = kl_loss(mistake, memory, PastFixes.of(model, [EXAMPLE.text], -1))
    torch.manual_seed(0)
    keys = torch.randn(1, 32)
    silent = Rows(keys, torch.ones(1), torch.zeros(1, 32))
    assert loss(silent).item() == pytest.approx(0, abs=1e-6)
    assert loss(Rows(keys, torch.ones(1), torch.randn(1, 32))).item() > 1e-4


def test_it_compares_with_the_model_just_before_the_edit() -> None:
    model = fresh("gpt2")
    editor = tp.TPatcher().fit(model, TEXTS)
    assert editor.memory is not None
    model.push(editor.edit(model, tp.Example("who is rome", "lima")))
    mistake = Mistake.find(model, EXAMPLE)
    loss = kl_loss(mistake, editor.memory, PastFixes.of(model, [EXAMPLE.text], -1))
    # what the past fix changed is not to be undone: without a new neuron nothing diverges
    assert loss(Rows.empty(32)).item() == pytest.approx(0, abs=1e-6)


def test_memory_is_drawn_anew_at_every_step_and_edit() -> None:
    model = fresh("gpt2")
    memory = tp.Memory.collect(model, TEXTS)
    torch.manual_seed(0)
    rows = Rows(torch.randn(1, 32), torch.ones(1), torch.randn(1, 32))
    found = []
    for text in ("the red dog", "the red cat", "the red dog"):
        example = tp.Example(text, "paris")
        mistake = Mistake.find(model, example)
        loss = kl_loss(mistake, memory, PastFixes.of(model, [example.text], -1), batch=9)
        found.append([loss(rows).item() for _ in range(3)])
    first, other, again = found
    assert len({*first, *other}) == 6
    assert again == first  # the same edit is the same each time


def test_it_corrects() -> None:
    model = fresh("bart")
    editor = tp.TPatcher(Paper(kl=True, steps=400))
    editor.fit(model, TEXTS)
    model.push(editor.edit(model, EXAMPLE))
    assert model.correct([EXAMPLE]) == [True]


def test_it_needs_cached_states() -> None:
    model = fresh("bart")
    editor = tp.TPatcher(Paper(kl=True), layer=0).fit(model, TEXTS)
    with pytest.raises(BadInput, match="cached states"):
        editor.edit(model, EXAMPLE)
