"""Training makes a loadable model, goes on after an interruption, leaves no half-made folder."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
)

from tpatcher import data
from tpatcher.checkpoints import builtin
from tpatcher.checkpoints import train as training
from tpatcher.checkpoints.builtin import BUILTIN, train_builtin
from tpatcher.checkpoints.train import Agreement, Recipe, train
from tpatcher.data.builtin import builtin_fc, builtin_qa
from tpatcher.data.split import Split
from tpatcher.errors import BadInput
from tpatcher.example import Example

SHIPPED = Path(data.__file__).parent
QUICK = Recipe(epochs=2, rate=1e-3, batch=4, half=True, agreement=0.1)


def in_words(ways: list[str], answer: str) -> list[Example]:
    """An example per phrasing, the others as its rephrasings."""
    return [Example(w, answer, rephrasings=tuple(o for o in ways if o != w)) for w in ways]


CLAIMS = [
    e
    for i in range(4)
    for e in in_words(
        [f"Claim number {i} is true.", f"True is claim {i}."], "SUPPORTS" if i % 2 else "REFUTES"
    )
]
QUESTIONS = [
    e for i in range(4) for e in in_words([f"What is number {i}?", f"Name it: {i}."], f"Number {i}")
]


def split_of(rows: list[Example]) -> Split:
    return Split(train=rows, edit=(), test=())


@pytest.fixture
def few_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "builtin_fc", lambda: split_of(CLAIMS))
    monkeypatch.setattr(builtin, "builtin_qa", lambda: split_of(QUESTIONS))


@pytest.fixture
def claims_base(few_facts: None, tmp_path: Path) -> Path:
    return train_builtin("builtin-fc", tmp_path / "base", recipe=QUICK, progress=False)


@pytest.mark.usefixtures("few_facts")
def test_a_builtin_classifier_loads_and_is_stored_in_half(tmp_path: Path) -> None:
    out = train_builtin("builtin-fc", tmp_path / "fc", recipe=QUICK, progress=False)
    net = AutoModelForSequenceClassification.from_pretrained(out)
    assert net.config.id2label == {0: "REFUTES", 1: "SUPPORTS"}
    assert net.dtype == torch.float32
    assert net.config.hidden_dropout_prob > 0
    stored = load_file(out / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16}
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"
    batch = AutoTokenizer.from_pretrained(out)(["Claim number 1 is true."], return_tensors="pt")
    assert net(**batch).logits.shape == (1, 2)


@pytest.mark.usefixtures("few_facts")
def test_a_builtin_seq2seq_learns_and_spells_answers_back(tmp_path: Path) -> None:
    recipe = replace(QUICK, epochs=60, rate=3e-3)
    out = train_builtin("builtin-qa", tmp_path / "qa", recipe=recipe, progress=False)
    net, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert "model.encoder.embed_tokens.weight" not in load_file(out / "model.safetensors")  # tied
    assert (net.generation_config.num_beams, net.generation_config.do_sample) == (1, False)
    batch = tokenizer([e.text for e in QUESTIONS], return_tensors="pt", padding=True)
    said = tokenizer.batch_decode(net.generate(**batch), skip_special_tokens=True)
    assert sum(e.accepts(a) for e, a in zip(QUESTIONS, said, strict=True)) >= 6


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
        Agreement(replace(QUICK, agreement=1.0))(
            SimpleNamespace(logits=logits, **{field: (states,)}), labels
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


def test_what_no_training_row_has_can_be_said_all_the_same() -> None:
    """A token in the middle of a merge is the sum of its parts, as long as the others."""
    tokenizer = builtin.small_tokenizer(rows := [Example("Lima Lima", "Lima"), Example("M", "M")])
    net = builtin.small_seq2seq(tokenizer)
    table = net.get_input_embeddings().weight.data
    middle, whole, left, right = tokenizer.convert_tokens_to_ids(["Li", "ĠLima", "L", "i"])
    kept = table[whole].clone()
    training._renew(net, tokenizer, training._encode(net, tokenizer, rows))
    cosine = torch.cosine_similarity(table[middle], table[left] + table[right], dim=-1)
    assert cosine > 0.999
    assert torch.equal(table[whole], kept)


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


def test_an_unknown_builtin_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=", ".join(BUILTIN)):
        train_builtin("builtin-xy", tmp_path / "x")  # type: ignore[arg-type]


def test_the_shipped_models_are_small() -> None:
    files = [p for name in BUILTIN for p in (SHIPPED / name).iterdir()]
    assert sum(p.stat().st_size for p in files) <= 12e6
    for name in BUILTIN:
        assert {"model.safetensors", "config.json", "tokenizer.json"} <= {
            p.name for p in (SHIPPED / name).iterdir()
        }


@pytest.mark.parametrize(("name", "least"), [("builtin-fc", 0.75), ("builtin-qa", 0.6)])
def test_the_shipped_models_know_trained_facts_in_unseen_words(name: str, least: float) -> None:
    split = builtin_fc() if name == "builtin-fc" else builtin_qa()
    known, unknown = (
        right(name, random.Random(0).sample(p, 400)) for p in (split.test, split.edit)
    )
    assert known >= least - 0.05  # a sample of 400 may miss by that much
    assert unknown <= 0.7  # there is something left to edit


def right(name: str, rows: list[Example]) -> float:
    """The share of right answers of a shipped model."""
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED / name)
    batch = tokenizer([e.text for e in rows], return_tensors="pt", padding=True)
    ids = {k: batch[k] for k in ("input_ids", "attention_mask")}
    with torch.no_grad():
        if name == "builtin-fc":
            net = AutoModelForSequenceClassification.from_pretrained(SHIPPED / name)
            said = [net.config.id2label[i] for i in net(**ids).logits.argmax(-1).tolist()]
        else:
            net = AutoModelForSeq2SeqLM.from_pretrained(SHIPPED / name)
            said = tokenizer.batch_decode(net.generate(**ids), skip_special_tokens=True)
    return sum(e.accepts(a) for e, a in zip(rows, said, strict=True)) / len(rows)
