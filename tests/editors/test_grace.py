"""GRACE: how entries are made, grow and shrink."""

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, fresh, logits
from tpatcher.editors import Editor, Grace, TPatcher
from tpatcher.editors.grace import Book
from tpatcher.patches.codebook import Codebook, match


def book() -> Book:
    return Book(torch.empty(0, 2), torch.empty(0), torch.empty(0, 1), torch.empty(0).long())


def test_radii_split_and_grow_on_a_sequence_made_by_hand() -> None:
    b = book()
    value = torch.zeros(1)
    assert b.insert(torch.tensor([0.0, 0.0]), value, 7, 1.0) == 0
    assert b.insert(torch.tensor([5.0, 0.0]), value, 7, 1.0) == 1  # far away: an entry of its own
    assert b.radii.tolist() == [1.0, 1.0]
    # near the first, the same answer: the first one grows to reach it
    assert b.insert(torch.tensor([1.5, 0.0]), value, 7, 1.0) == 0
    assert b.radii.tolist() == [1.5, 1.0]
    # within the first, the same answer: nothing to do
    assert b.insert(torch.tensor([0.5, 0.0]), value, 7, 1.0) == 0
    assert b.radii.tolist() == [1.5, 1.0]
    # near the first, another answer: both shrink to half the distance
    assert b.insert(torch.tensor([0.0, 1.0]), value, 8, 1.0) == 2
    assert b.radii.tolist() == pytest.approx([0.5 - 1e-5, 1.0, 0.5])
    assert b.tokens.tolist() == [7, 7, 8]
    asked = torch.tensor([[0.0, 0.4], [0.0, 0.6], [0.0, 2.0], [5.0, 0.9]])
    nearest, inside = match(asked, b.keys, b.radii)
    assert nearest.tolist() == [0, 2, 2, 1]
    assert inside.tolist() == [True, True, False, True]


def test_a_patch_is_the_whole_codebook() -> None:
    model = fresh("gpt2")
    before = logits(model)
    editor = Grace(radius=0.01, steps=30)
    for n, (text, answer) in enumerate([("the red dog", "paris"), ("who is rome", "lima")], 1):
        patch = editor.edit(model, tp.Example(text, answer))
        model.push(patch)
        assert isinstance(patch, Codebook)
        assert len(patch.keys) >= n
        assert patch.layer == -2
    books = [p for p in model.patches if isinstance(p, Codebook)]
    torch.testing.assert_close(books[1].keys[: len(books[0].keys)], books[0].keys)
    assert model.correct([p.example for p in model.patches if p.example]) == [True, True]
    # outside all radii nothing changes, bit for bit
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("first", ["grace", "t-patcher"])
def test_a_codebook_and_neurons_in_one_layer_bear_each_other(name: str, first: str) -> None:
    model = fresh(name)
    stock = logits(model)
    editors: list[Editor] = [Grace(layer=-1, radius=0.01), TPatcher().fit(model, QUESTIONS)]
    if first == "t-patcher":
        editors.reverse()
    classify = model.task.name == "classify"
    asked = ["the red dog", "who is rome"]
    for editor, text, answer in zip(editors, asked, ["paris", "lima"], strict=True):
        said = model.answer([text])[0]
        right = next(a for a in ("no", "yes") if a != said) if classify else answer
        model.push(editor.edit(model, tp.Example(text, right)))
    assert model.correct([p.example for p in model.patches if p.example]) == [True, True]
    both = logits(model)
    second = model.pop()
    assert model.correct([p.example for p in model.patches if p.example]) == [True]
    model.push(second)
    assert torch.equal(logits(model), both)
    model.set_patches(())
    assert torch.equal(logits(model), stock)
