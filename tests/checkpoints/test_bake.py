"""Baked checkpoints run without tpatcher and say the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import tpatcher as tp
from tests import chat, zoo
from tests.checkpoints.fixed_models import patched
from tests.helpers import TEXTS, fresh
from tests.service import served
from tpatcher.checkpoints.bake import bake
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.errors import BadInput, NotExported, UnsupportedArchitecture
from tpatcher.models.model import Model

CAN = [
    "bert",
    "distilbert",
    "roberta",
    "electra",
    "bart",
    "mbart",
    "gpt2",
    "gpt-neox",
    "opt",
    "llama",
]
CANNOT = ["t5", "t5-gated", "qwen3", "gemma2", "phi3", "bloom", "modernbert"]


@pytest.mark.parametrize("name", CAN)
def test_a_stock_class_loads_it_and_answers_the_same(name: str, tmp_path: Path) -> None:
    model = patched(name)
    texts = list(served.texts()[:20])
    assert bake(model, tmp_path / "out", texts) < 1e-4
    plain = zoo.AUTO[model.task.name].from_pretrained(tmp_path / "out")
    assert type(plain) is type(model.net)
    again = Model(plain, zoo.tokenizer(model.task.name), model.task.name)
    asked = [p.example.text for p in model.patches if p.example] + texts
    assert again.answer(asked) == model.answer(asked) and not again.patches
    with pytest.raises(BadInput, match="not empty"):
        bake(model, tmp_path / "out")


@pytest.mark.parametrize("name", CANNOT)
def test_where_it_cannot_be_the_pack_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match="as a pack instead"):
        bake(patched(name), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_patches_of_an_inner_layer_are_baked_too(tmp_path: Path) -> None:
    model = patched("bert")
    inner = model.patches[0]
    model.pop()
    moved: dict[str, Any] = {"layer": -2, "values": 0.1 * torch.ones_like(inner.values), "id": ""}  # type: ignore[attr-defined]
    model.set_patches([replace(inner, **moved), *model.patches[1:]])
    assert bake(model, tmp_path / "out", list(served.texts()[:10])) < 1e-4


def test_a_difference_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpatcher.checkpoints.bake.CLOSE", -1.0)
    with pytest.raises(NotExported, match="logits differ"):
        bake(patched("bert"), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_reads_the_whole_text_cannot_be_baked(tmp_path: Path) -> None:
    model = fresh("bart")
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    model.push(editor.edit(model, tp.Example("what is the river of rome ?", "lima")))
    with pytest.raises(UnsupportedArchitecture, match="reads the whole text"):
        bake(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["qwen2", "mistral"])
def test_what_is_a_llama_in_all_but_its_config_becomes_one(name: str, tmp_path: Path) -> None:
    model = patched(name)
    texts = list(served.texts()[:20])
    assert bake(model, tmp_path / "out", texts) < 1e-4
    plain = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(plain) is tf.LlamaForCausalLM
    again = Model(plain, zoo.tokenizer("causal"), "causal")
    assert again.answer(texts) == model.answer(texts)
    assert plain.config.architectures == ["LlamaForCausalLM"]


def test_a_window_is_no_part_of_a_llama(tmp_path: Path) -> None:
    model = patched("mistral")
    model.net.config.sliding_window = 16
    with pytest.raises(UnsupportedArchitecture, match="16 of its 64 positions"):
        bake(model, tmp_path / "out")


def test_spare_neurons_keep_the_shapes(tmp_path: Path) -> None:
    model = patched("llama")
    n = len(model.rows())
    bake(model, tmp_path / "two", spare=3)
    last = model.pop()
    bake(model, tmp_path / "one", spare=3 + n - len(model.rows()))
    shapes = [
        {k: t.shape for k, t in tf.AutoModelForCausalLM.from_pretrained(p).state_dict().items()}
        for p in (tmp_path / "one", tmp_path / "two")
    ]
    assert shapes[0] == shapes[1]
    assert last not in model.patches


def test_a_quantised_base_is_not_baked(tmp_path: Path) -> None:
    model = patched("llama")
    model.net.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(UnsupportedArchitecture, match=r"quantised.*without quantize="):
        bake(model, tmp_path / "out")


def test_longer_answers_are_compared_and_no_limit_is_written(tmp_path: Path) -> None:
    model = chat.chat()
    longer = tp.Model(model.net, model.tokenizer, "causal", name="chat", max_new_tokens=24)
    bake(longer, tmp_path / "out", ["Who runs the museum?"])
    kept = tf.GenerationConfig.from_pretrained(tmp_path / "out")
    assert kept.max_new_tokens == 8
