"""Training makes a loadable model, goes on after an interruption, leaves no half-made folder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, EvalPrediction, Trainer

from tests.checkpoints.few_facts import CLAIMS, QUESTIONS, QUICK, split_of
from tests.helpers import bringing_code, says_yes
from tpatcher.checkpoints import builtin
from tpatcher.checkpoints import train as training
from tpatcher.checkpoints.builtin import train_builtin
from tpatcher.checkpoints.recipes import FEVER, ZSRE
from tpatcher.checkpoints.train import agreement_loss, train
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.models.loading import load


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


def test_the_best_epoch_on_d_val_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three epochs is told to be best; what is saved are its weights."""
    net = builtin.small_classifier(tokenizer := builtin.small_tokenizer(CLAIMS))
    told, seen = [0.2, 0.9, 0.5], list[Tensor]()

    def scripted(*_: Any) -> dict[str, float]:
        seen.append(next(net.parameters()).detach().clone())
        return {"accuracy": told[len(seen) - 1]}

    monkeypatch.setattr(training, "accuracy", scripted)
    recipe = replace(FEVER, updates=None, epochs=3, batch=4, rate=1e-2, warmup=0.0)
    split = replace(split_of(CLAIMS), val=CLAIMS[:3])
    out = training.fit(net, tokenizer, split, tmp_path / "out", recipe, progress=False)
    kept = next(AutoModelForSequenceClassification.from_pretrained(out).parameters())
    assert len(seen) == 3
    assert torch.equal(kept, seen[1]) and not torch.equal(kept, seen[2])


def test_a_generator_is_checked_by_what_it_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = builtin.small_seq2seq(tokenizer := builtin.small_tokenizer(QUESTIONS))
    found, real = list[float](), training.accuracy

    def noted(*words: Any) -> dict[str, float]:
        shares = real(*words)
        found.extend(shares.values())
        return shares

    monkeypatch.setattr(training, "accuracy", noted)
    recipe = replace(ZSRE, updates=None, epochs=3, batch=8, rate=2e-3, warmup=0.05, clip=1.0)
    split = replace(split_of(QUESTIONS * 24), val=QUESTIONS)
    out = tmp_path / "out"
    training.fit(net, tokenizer, split, out, recipe, progress=False, device="cpu")
    assert len(found) == 3
    assert max(found) == sum(load(out).correct(QUESTIONS)) / len(QUESTIONS) > 0.5


def test_updates_are_counted_and_texts_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = builtin.small_classifier(tokenizer := builtin.small_tokenizer(CLAIMS))
    widths, step = list[int](), Trainer.training_step

    def counted(self: Trainer, model: Any, inputs: Any, *more: Any) -> Any:
        widths.append(inputs["input_ids"].shape[1])
        return step(self, model, inputs, *more)

    monkeypatch.setattr(Trainer, "training_step", counted)
    recipe = replace(FEVER, updates=3, batch=4, length=4, warmup=1)
    training.fit(net, tokenizer, split_of(CLAIMS), tmp_path / "out", recipe, progress=False)
    assert widths == [4, 4, 4]


def test_de_caos_settings() -> None:
    for recipe, batch, updates in ((FEVER, 64, 10_000), (ZSRE, 48, 50_000)):
        assert (recipe.batch, recipe.updates, recipe.warmup) == (batch, updates, 500)
        assert (recipe.rate, recipe.weight_decay, recipe.length) == (3e-5, 0.01, 32)
        assert recipe.pick_best
    assert (FEVER.entropy, FEVER.smoothing, ZSRE.smoothing) == (0.1, 0.0, 0.1)


def test_the_entropy_of_labels_is_raised() -> None:
    """For two labels it is De Cao's loss of one logit: binary cross-entropy less 0.1 entropy."""
    logit, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 1, 0])
    logits = torch.stack([torch.zeros(3), logit], dim=-1)
    theirs = F.binary_cross_entropy_with_logits(logit, labels.float())
    theirs = theirs - 0.1 * torch.distributions.Bernoulli(logits=logit).entropy().mean()
    ours = training.entropy_loss(FEVER, SimpleNamespace(logits=logits), labels)
    assert torch.allclose(ours, theirs)


def test_answers_are_compared_as_the_paper_does() -> None:
    tokenizer = builtin.small_tokenizer(QUESTIONS)
    said, right = (
        np.array(tokenizer(texts, padding=True)["input_ids"])
        for texts in (["Number 1", "number 2", "3"], ["number 1 ", "Number 2", "Number 3"])
    )
    right[right == tokenizer.pad_token_id] = -100
    seen = EvalPrediction(predictions=said, label_ids=right)
    assert training.accuracy(tokenizer, seen) == {"accuracy": pytest.approx(2 / 3)}
    logits = EvalPrediction(predictions=np.eye(2), label_ids=np.array([0, 0]))
    assert training.accuracy(tokenizer, logits) == {"accuracy": 0.5}


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = builtin.small_classifier(tokenizer := builtin.small_tokenizer(CLAIMS))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device, reason in (("cuda:1", "CUDA_VISIBLE_DEVICES"), ("cuda", "sees no GPU")):
        with pytest.raises(BadInput, match=reason):
            training.fit(net, tokenizer, split_of(CLAIMS), tmp_path, QUICK, device=device)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="not empty"):
        train_builtin("builtin-fc", tmp_path, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_code_that_comes_with_a_base_is_never_run_nor_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    ran, asked = bringing_code(base), says_yes(monkeypatch)
    with pytest.raises((OSError, ValueError)):
        train(base, split_of(CLAIMS), "classify", tmp_path / "tuned", progress=False)
    assert asked == [] and not ran.exists()
