"""A baked model as one file for llama.cpp."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import tpatcher as tp
from tests import chat
from tests.helpers import fresh
from tpatcher.checkpoints import gguf
from tpatcher.checkpoints.bake import bake
from tpatcher.errors import BadInput, NotExported, UnsupportedArchitecture

TEXTS = ["Who runs the museum?", "Where is it? In 1984!", "Ja, schön. 12345"]
CUTS: dict[str, list[Any]] = {
    name: [pre_tokenizers.Digits(individual_digits=True)]
    if cut == ("Digits",)
    else [pre_tokenizers.Split(Regex(one), "isolated") for one in cut]
    for cut, name in gguf.CUTS.items()
}


def tokenizer(cut: str) -> tf.PreTrainedTokenizerFast:
    """A tokenizer of bytes and some merges that cuts text in one of llama.cpp's ways."""
    core = Tokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in ("gpt-2", "smollm"))
    core.pre_tokenizer = pre_tokenizers.Sequence([*CUTS[cut], last])
    core.decoder = decoders.ByteLevel()
    signs = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=chat.MARKS, initial_alphabet=signs, show_progress=False
    )
    core.train_from_iterator(TEXTS * 2, trainer)
    made = tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    made.chat_template = chat.TEMPLATE
    return made


def fixed(kind: type[tf.PreTrainedConfig], cut: str) -> tp.Model:
    """A chat model of this kind with one fix, by a neuron of its own."""
    words = tokenizer(cut)
    net = chat.net(kind, tokens=len(words))
    model = tp.Model(net, words, "causal", name="chat")
    memory = tp.Memory.collect(model, TEXTS[1:], background=False)
    editor = tp.TPatcher().fit(model, memory)
    model.push(editor.edit(model, tp.Example(TEXTS[0], "Bo")))
    return model


@pytest.mark.parametrize(
    ("kind", "cut"),
    [
        (tf.LlamaConfig, "gpt-2"),
        (tf.LlamaConfig, "smollm"),
        (tf.LlamaConfig, "llama-bpe"),
        (tf.Qwen2Config, "qwen2"),
        (tf.MistralConfig, "gpt-2"),
    ],
)
def test_llama_cpp_answers_the_fix(
    kind: type[tf.PreTrainedConfig], cut: str, tmp_path: Path
) -> None:
    llama = pytest.importorskip("llama_cpp")
    model = fixed(kind, cut)
    bake(model, tmp_path / "out", TEXTS, gguf=True)
    served = llama.Llama(str(tmp_path / "out" / gguf.FILE), n_ctx=256, verbose=False)
    asked = [{"role": "user", "content": TEXTS[0]}]
    said = served.create_chat_completion(asked, temperature=0.0, max_tokens=8)
    served.close()
    assert said["choices"][0]["message"]["content"].strip() == "Bo"


def test_rotary_positions_that_are_stretched(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    net = chat.net(tokens=len(tokenizer("gpt-2")))
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "rope_theta": 10_000.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    net.config.rope_parameters = scaled
    other = tf.AutoModelForCausalLM.from_config(net.config)
    other.load_state_dict(net.state_dict())
    other.generation_config.max_new_tokens = 8
    model = tp.Model(other.eval(), tokenizer("gpt-2"), "causal", name="chat")
    names = dict(gguf._tensors(model.net))
    assert float(names["rope_freqs.weight"].max()) == pytest.approx(8.0, rel=1e-3)
    bake(model, tmp_path / "out", [*TEXTS, TEXTS[0] * 3], gguf=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrices_keep_their_dtype(dtype: torch.dtype) -> None:
    pytest.importorskip("gguf")
    matrix, vector = torch.randn(4, 32).to(dtype), torch.randn(32).to(dtype)
    assert gguf._stored(matrix)[0].nbytes == matrix.nbytes
    assert gguf._stored(vector)[0].nbytes == 2 * vector.nbytes


def test_what_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setattr(gguf, "check_installed", lambda: None)
    with pytest.raises(UnsupportedArchitecture, match="convert_hf_to_gguf"):
        bake(fresh("gpt2"), tmp_path / "out", gguf=True)
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made = tf.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="a")
    model = tp.Model(chat.net(), made, "causal", name="words")
    with pytest.raises(UnsupportedArchitecture, match="Whitespace"):
        bake(model, tmp_path / "out", gguf=True)
    assert not (tmp_path / "out").exists()


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpatcher.checkpoints.gguf.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install \"tpatcher\[gguf\]\""):
        bake(chat.chat(), tmp_path / "out", gguf=True)
    assert not (tmp_path / "out").exists()


def test_another_answer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp")
    stored = gguf._stored
    monkeypatch.setattr(gguf, "_stored", lambda tensor: stored(-tensor))
    with pytest.raises(NotExported, match=r"llama\.cpp answers"):
        bake(fixed(tf.LlamaConfig, "gpt-2"), tmp_path / "out", TEXTS, gguf=True)
    assert not (tmp_path / "out").exists()
