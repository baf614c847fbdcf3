"""Training makes a loadable model, goes on after an interruption, leaves no half-made folder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, Trainer

from tests.checkpoints.few_facts import CLAIMS, QUICK, split_of
from tpatcher.checkpoints import builtin
from tpatcher.checkpoints import train as training
from tpatcher.checkpoints.builtin import train_builtin
from tpatcher.checkpoints.train import agreement_loss, train
from tpatcher.errors import BadInput
from tpatcher.example import Example


@pytest.fixture
def claims_base(few_facts: None, tmp_path: Path) -> Path:
    return train_builtin("builtin-fc", tmp_path / "base", recipe=QUICK, progress=False)


@pytest.mark.parametrize("shape", [(6, 1, 8), (6, 3, 8)])
def test_agreement_is_best_where_rephrasings_look_alike(shape: tuple[int, ...]) -> None:
    """The loss of a classifier's and of a generator's states, each told apart from the others."""
    torch.manual_seed(0)
    half = torch.randn(shape)
    alike, mixed = torch.cat([half, half]), torch.cat([half, half.roll(1, 0)])
    generates = shape[1] > 1
    labels = torch.zeros(12, shape[1], dtype=torch.long) if generates else torch.zeros(12).long()
    logits = torch.zeros(12, shape[1], 2) if generates else torch.zeros(12, 2)
    field = "decoder_hidden_states" if generates else "hidden_states"
    near, far = (
        agreement_loss(
            replace(QUICK, agreement=1.0),
            SimpleNamespace(logits=logits, **{field: (states,)}),
            labels,
        )
        for states in (alike, mixed)
    )
    assert near < far


def test_without_agreement_rephrasings_are_not_needed(tmp_path: Path) -> None:
    rows = [replace(e, rephrasings=()) for e in CLAIMS]
    net = builtin.small_classifier(tokenizer := builtin.small_tokenizer(rows))
    for recipe in (QUICK, replace(QUICK, agreement=0.0)):
        out = tmp_path / str(recipe.agreement)
        training.fit(net, tokenizer, split_of(rows), out, recipe, progress=False)
        assert not AutoModelForSequenceClassification.from_pretrained(
            out
        ).config.output_hidden_states


@pytest.mark.usefixtures("few_facts")
def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    one, two = (
        train_builtin("builtin-fc", tmp_path / n, recipe=QUICK, progress=False) for n in ("a", "b")
    )
    first, second = (load_file(p / "model.safetensors") for p in (one, two))
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_fine_tuning_takes_the_labels_from_the_data(claims_base: Path, tmp_path: Path) -> None:
    rows = [Example(e.text, "yes" if e.answer == "SUPPORTS" else "no") for e in CLAIMS]
    out = train(
        claims_base, split_of(rows), "classify", tmp_path / "tuned", recipe=QUICK, progress=False
    )
    net = AutoModelForSequenceClassification.from_pretrained(out)
    assert net.config.id2label == {0: "no", 1: "yes"}


@pytest.mark.usefixtures("few_facts")
def test_an_interrupted_run_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train_builtin("builtin-fc", tmp_path / "straight", recipe=QUICK, progress=False)
    real = Trainer._save_checkpoint

    def killed(self: Trainer, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        raise KeyboardInterrupt

    out = tmp_path / "broken"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Trainer, "_save_checkpoint", killed)
        train_builtin("builtin-fc", out, recipe=QUICK, progress=False)
    assert not out.exists()
    with pytest.raises(BadInput, match="other settings"):
        train_builtin("builtin-fc", out, recipe=replace(QUICK, seed=1), progress=False)
    steps = 0
    step = Trainer.training_step

    def counted(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "training_step", counted)
    train_builtin("builtin-fc", out, recipe=QUICK, progress=False)
    assert steps == 2  # the second epoch only
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken", "straight"]
    first, second = (load_file(p / "model.safetensors") for p in (straight, out))
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="not empty"):
        train_builtin("builtin-fc", tmp_path, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
