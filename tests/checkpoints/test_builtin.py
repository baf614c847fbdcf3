"""The two models of the package can be trained again, are small and know their facts."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

from tests.checkpoints.few_facts import QUESTIONS, QUICK
from tpatcher import data
from tpatcher.checkpoints import builtin
from tpatcher.checkpoints import train as training
from tpatcher.checkpoints.builtin import BUILTIN, train_builtin
from tpatcher.data.builtin import builtin_fc, builtin_qa
from tpatcher.errors import BadInput
from tpatcher.example import Example

SHIPPED = Path(data.__file__).parent


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


def test_what_no_training_row_has_can_be_said_all_the_same() -> None:
    """A token in the middle of a merge is the sum of its parts, as long as the others."""
    tokenizer = builtin.small_tokenizer(rows := [Example("Lima Lima", "Lima"), Example("M", "M")])
    net = builtin.small_seq2seq(tokenizer)
    table = net.get_input_embeddings().weight.data
    middle, whole, left, right = tokenizer.convert_tokens_to_ids(["Li", "ĠLima", "L", "i"])
    kept = table[whole].clone()
    training._revive_unused_tokens(net, tokenizer, training._encode(net, tokenizer, rows))
    cosine = torch.cosine_similarity(table[middle], table[left] + table[right], dim=-1)
    assert cosine > 0.999
    assert torch.equal(table[whole], kept)


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
