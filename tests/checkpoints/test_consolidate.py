"""Consolidation: a new base that needs no patches, or nothing at all."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import zoo
from tests.checkpoints.fixed_models import EASY, TEXTS
from tests.service import served
from tpatcher import data
from tpatcher.checkpoints import unfinished
from tpatcher.checkpoints.consolidate import consolidate, fixes_to_teach
from tpatcher.editors import TPatcher
from tpatcher.errors import AlreadyRight, BadInput, NotFitted, NotFixed, Refused
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model


def patched(name: str) -> Model:
    base, editor = served.fitted(name)
    model = base.twin()
    classify = base.task.name == "classify"
    for text, answer in (("who wrote hamlet ?", "shakespeare"), ("where is the cat ?", "rome")):
        right = served.wrong(base.answer([text])[0]) if classify else answer
        with suppress(AlreadyRight, NotFixed):
            model.push(editor.edit(model, Example(text, right)))
    assert model.patches
    return model


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_the_new_base_knows_the_fixes_without_a_patch(name: str, tmp_path: Path) -> None:
    model = patched(name)
    weights = {k: v.clone() for k, v in model.net.state_dict().items()}
    # what random weights keep is luck; real ones are asked below
    settings = replace(EASY, retention=0.0)
    new, outcome = consolidate(model, TEXTS[:60], tmp_path / "new", settings=settings)
    fixes = fixes_to_teach(model)
    assert (outcome.fixes, outcome.lost, outcome.held_out) == (len(fixes), [], 12)
    assert all(new.correct(fixes)) and not new.patches
    assert new.base.fingerprint != model.base.fingerprint
    again = load(tmp_path / "new")  # what is on the disk is what was checked
    assert again.base == new.base and all(again.correct(fixes))
    assert all(torch.equal(v, weights[k]) for k, v in model.net.state_dict().items())
    assert all(model.correct(fixes))  # the patches stay valid on the base they were made for
    with pytest.raises(BadInput, match="not empty"):
        consolidate(model, TEXTS, tmp_path / "new", settings=EASY)


def test_rephrasings_that_hold_are_taught_too_and_the_newest_of_a_text_counts() -> None:
    model = patched("bert")
    first = model.patches[0]
    assert first.example is not None
    later = replace(first.example, rephrasings=("hamlet was wrote ?",))
    model.set_patches([*model.patches, replace(first, example=later, id="")])
    found = fixes_to_teach(
        model, learned=[Example(first.example.text, "no"), Example("a dog", "no")]
    )
    assert {e.text: e for e in found}[later.text] == later
    assert "a dog" in [e.text for e in found] and len(found) == len(model.patches)


def test_if_a_check_fails_nothing_is_left_and_the_reasons_are_said(tmp_path: Path) -> None:
    model = patched("bert")
    with pytest.raises(Refused, match="held-out answers would stay as they are"):
        consolidate(model, TEXTS, tmp_path / "a", settings=replace(EASY, retention=1.01, steps=2))
    with pytest.raises(Refused, match="of the fixes would be lost"):
        consolidate(
            model,
            TEXTS,
            tmp_path / "b",
            settings=replace(EASY, retention=0.0, learning_rate=0.0, steps=1),
        )
    # the base unlearns what it is taught otherwise: canaries that the fixes have right now
    kept = [Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
    with pytest.raises(Refused, match="canaries would become wrong"):
        consolidate(
            model,
            TEXTS,
            tmp_path / "c",
            canaries=kept,
            settings=replace(EASY, retention=0.0, learning_rate=0.05, anchor=0.0, steps=25),
        )
    assert not list(tmp_path.iterdir())


def test_a_stop_from_the_keyboard_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tpatcher.checkpoints.consolidate.descend", stopped)
    with pytest.raises(KeyboardInterrupt):
        consolidate(patched("bert"), TEXTS, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_stopped_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "EVERY", 0.0)
    model, short = patched("bert"), replace(EASY, check_every=2, steps=12, retention=0.0, cooling=1)
    whole, _ = consolidate(model, TEXTS[:60], tmp_path / "whole", settings=short)
    made, step = list[int](), torch.optim.AdamW.step

    def counted(adam: torch.optim.AdamW) -> None:
        if len(made) == 5:
            made.append(0)
            raise KeyboardInterrupt
        made.append(1)
        step(adam)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    with pytest.raises(KeyboardInterrupt):
        consolidate(model, TEXTS[:60], tmp_path / "new", settings=short)
    assert {p.name for p in tmp_path.iterdir()} == {"whole", ".new.unfinished.safetensors"}
    (tmp_path / ".other.unfinished.safetensors").write_bytes(b"damaged")
    other = unfinished.Unfinished(tmp_path / "other", "another run")
    for name in ("other", "new"):  # neither what is damaged nor what is of another run is used
        other.file = tmp_path / f".{name}.unfinished.safetensors"
        assert other.load({}, torch.optim.AdamW([torch.zeros(1)])) == (0, 1.0)
    (tmp_path / ".other.unfinished.safetensors").unlink()
    new, outcome = consolidate(model, TEXTS[:60], tmp_path / "new", settings=short)
    assert sum(made) == 5 + outcome.steps - 4, "it went on after the fourth step"
    assert {p.name for p in tmp_path.iterdir()} == {"whole", "new"}
    theirs = whole.net.state_dict()
    assert all(torch.equal(v, theirs[k]) for k, v in new.net.state_dict().items())


def test_what_cannot_be_taught_is_said(tmp_path: Path) -> None:
    model = patched("bert")
    with pytest.raises(NotFitted, match="too few"):
        consolidate(model, TEXTS[:3], tmp_path / "new")
    bare = Model(zoo.net("bert"), zoo.tokenizer("classify"), "classify")
    with pytest.raises(BadInput, match="no fix to consolidate"):
        consolidate(bare, TEXTS, tmp_path / "new")
    bare.set_patches([p.without_text() for p in model.patches])
    with pytest.raises(BadInput, match="has no text"):
        consolidate(bare, TEXTS, tmp_path / "new")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["builtin-fc", "builtin-qa"])
def test_the_built_in_models_learn_twenty_fixes_and_keep_the_rest(
    name: str, tmp_path: Path
) -> None:
    model, texts = load(name), data.traffic(name)
    editor = TPatcher().fit(model, texts)
    for example in data.dataset(name).edit:
        with suppress(AlreadyRight, NotFixed):
            model.push(editor.edit(model, replace(example, rephrasings=())))
        if len(model.patches) == 20:
            break
    _, outcome = consolidate(model, texts, tmp_path / "new")
    assert (outcome.fixes, outcome.lost) == (20, [])
    assert outcome.kept >= 0.95
