"""Every rule, on every editor: pure edit, exact undo, bytes and packs, same seed same patch."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import QUESTIONS, examples, fresh, logits, wrong_label
from tpatcher.editors import EDITORS, Editor, make
from tpatcher.errors import BadInput, NotRemovable, WrongBase
from tpatcher.patches import from_bytes, pack
from tpatcher.patches.base import Patch

ARCHITECTURES = ("bert", "bart", "gpt2")
# a tiny model does not need the steps of a large one
QUICK: dict[str, dict[str, Any]] = {
    "mend": {
        "steps": 3,
        "validation": 4,
        "edits": 2,
        "rank": 8,
        "edit_rate": 0.01,
        "progress": False,
    },
    "ke": {"steps": 3, "validation": 4, "hidden": 8, "condition": 8, "progress": False},
    "sera": {"steps": 3, "validation": 4, "encoder": "", "progress": False},
    "serac": {"steps": 3, "validation": 4, "encoder": "", "progress": False},
    "grace": {"steps": 30},
    "lora": {"learning_rate": 0.01, "steps": 30},
}
for tuned in ("ft-last", "ft-all", "ft-last-kl", "ft-all-kl"):
    QUICK[tuned] = {"learning_rate": 0.01, "steps": 50, "kl_batch": 4}
CORRECTS = set(EDITORS) - {"mend", "ke", "serac"}

grid = pytest.mark.parametrize(
    ("name", "editor"), [(name, editor) for name in ARCHITECTURES for editor in EDITORS]
)


@cache
def fitted(name: str, editor: str) -> Editor:
    return EDITORS[editor](**QUICK.get(editor, {})).fit(fresh(name), examples(name))


@cache
def made(name: str, editor: str) -> tuple[Patch, Patch]:
    """Patches for two mistakes, the second made on top of the first."""
    model = fresh(name)
    found = []
    for text, answer in (("the bird is in tokyo ?", "tokyo"), ("who was red ?", "shakespeare")):
        answer = wrong_label(model, text) if name == "bert" else answer
        found.append(fitted(name, editor).edit(model, tp.Example(text, answer)))
        model.push(found[-1])
    return found[0], found[1]


def test_editor_names() -> None:
    wanted = {"t-patcher", "ft-last", "ft-all", "ft-last-kl", "ft-all-kl", "mend", "ke", "sera"}
    assert set(EDITORS) == wanted | {"serac", "cache", "grace", "lora"}


@grid
def test_editing_is_pure(name: str, editor: str) -> None:
    model = fresh(name)
    before = logits(model)
    tensors = {n: (p, p.detach().clone()) for n, p in model.net.named_parameters()}
    random = torch.get_rng_state()
    first, _ = made(name, editor)
    assert first.example is not None
    fitted(name, editor).edit(model, first.example)
    assert torch.equal(torch.get_rng_state(), random), "nor may it move the random numbers"
    assert torch.equal(logits(model), before)
    for n, p in model.net.named_parameters():
        assert p is tensors[n][0]
        assert torch.equal(p, tensors[n][1])
        assert p.requires_grad
        assert p.grad is None


@grid
def test_undo_is_exact(name: str, editor: str) -> None:
    model = fresh(name)
    first, second = made(name, editor)
    said, states = model.answer(QUESTIONS), [logits(model)]
    stock = dict(model.net.named_parameters())
    model.push(first)
    states.append(logits(model))
    model.push(second)
    assert model.pop() is second
    assert torch.equal(logits(model), states[1])
    assert model.pop() is first
    assert torch.equal(logits(model), states[0])
    assert model.answer(QUESTIONS) == said
    assert all(p is stock[n] for n, p in model.net.named_parameters())


@grid
def test_a_twin_is_isolated(name: str, editor: str) -> None:
    model = fresh(name)
    first, second = made(name, editor)
    model.push(first)
    before, twin = logits(model), model.twin()
    twin.push(second)
    assert torch.equal(logits(model), before)
    twin.set_patches(())
    assert torch.equal(logits(twin), logits(fresh(name)))
    assert torch.equal(logits(model), before)


@grid
def test_only_the_newest_comes_off_where_edits_build_on_each_other(name: str, editor: str) -> None:
    model = fresh(name)
    first, second = made(name, editor)
    for patch in (first, second):
        model.push(patch)
    if first.removable_alone:
        model.remove(first.id)
        alone = fresh(name)
        alone.push(second)
        assert torch.equal(logits(model), logits(alone))
        assert model.answer(QUESTIONS) == alone.answer(QUESTIONS)
    else:
        with pytest.raises(NotRemovable):
            model.remove(first.id)


@grid
def test_bytes_and_packs(name: str, editor: str, tmp_path: Path) -> None:
    model = fresh(name)
    patches = made(name, editor)
    for patch in patches:
        back = from_bytes(patch.to_bytes())
        assert type(back) is type(patch)
        assert (back.id, back.checksum, back.meta) == (patch.id, patch.checksum, patch.meta)
        model.push(patch)
    model.save_patches(tmp_path)
    again = fresh(name)
    again.set_patches(pack.read(tmp_path, again.base))
    assert torch.equal(logits(again), logits(model))
    assert again.answer(QUESTIONS) == model.answer(QUESTIONS)


@grid
def test_same_seed_same_patch(name: str, editor: str) -> None:
    first, _ = made(name, editor)
    model = fresh(name)
    again = EDITORS[editor](**QUICK.get(editor, {})).fit(model, examples(name))
    assert first.example is not None
    assert again.edit(model, first.example).checksum == first.checksum


@grid
def test_the_mistake_is_corrected(name: str, editor: str) -> None:
    """Of those that need no training; what the trained ones can do, the slow tests show."""
    if editor not in CORRECTS:
        pytest.skip("three steps of training correct nothing")
    model = fresh(name)
    for patch in made(name, editor):
        model.push(patch)
        assert patch.example is not None
        assert model.correct([patch.example]) == [True]


def test_kinds_of_patches_go_together() -> None:
    """Neurons on top of changed weights, beside a codebook, all off again."""
    model = fresh("bert")
    before = logits(model)
    for editor in ("ft-all", "grace", "sera", "cache", "t-patcher", "ft-last"):
        patch, _ = made("bert", editor)
        model.push(patch)
        assert not model.tail_is_exact or editor == "t-patcher"
    worn = logits(model)
    patches = model.patches
    model.set_patches(())
    assert torch.equal(logits(model), before)
    model.set_patches(patches)
    assert torch.equal(logits(model), worn)


@pytest.mark.parametrize("editor", ["ft-all", "grace"])
def test_a_patch_of_another_model_is_refused(editor: str) -> None:
    net = zoo.net("bert", hidden_size=64)
    wide = tp.Model(net, zoo.tokenizer("classify"), "classify")
    patch, _ = made("bert", editor)
    with pytest.raises(WrongBase, match=patch.id):
        wide.push(patch)
    assert wide.patches == ()


@grid
def test_an_empty_text_is_refused(name: str, editor: str) -> None:
    with pytest.raises(BadInput, match="empty text"):
        fitted(name, editor).edit(fresh(name), tp.Example(" ", "yes"))


@pytest.mark.parametrize("name", EDITORS)
def test_knobs_are_json_and_make_the_same_editor(name: str) -> None:
    """What was learned is no knob."""
    editor = fitted("bert", name)
    knobs = editor.knobs()
    assert json.loads(json.dumps(knobs)).keys() == knobs.keys()
    assert not {"memory", "state", "checkpoint", "trained_for", "recorder"} & knobs.keys()
    assert make(name, **knobs).knobs() == knobs


def test_an_unknown_editor_is_refused_with_a_hint() -> None:
    with pytest.raises(BadInput, match="Did you mean 'mend'"):
        make("mendd")


def test_an_unknown_field_of_an_editor_is_refused_with_a_hint() -> None:
    with pytest.raises(BadInput, match=r"field of grace 'radus'\. Did you mean 'radius'"):
        make("grace", radus=1)
    with pytest.raises(BadInput, match=r"field of the solver text 'crosing'\. Did you mean 'cross"):
        make("t-patcher", solver={"name": "text", "crosing": 0.5})
