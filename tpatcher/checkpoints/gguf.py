"""A baked Llama as one file for llama.cpp: its numbers, its tokenizer and its chat template.

llama.cpp knows the biases that a Llama's feed-forward layers may have, and fixes are made of those.
"""

import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpatcher.errors import BadInput, NotExported, UnsupportedArchitecture
from tpatcher.models.model import Model
from tpatcher.nets.causal import Causal

FILE = "model.gguf"
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What llama.cpp calls the ways in which byte-level tokenizers cut text before they merge.
CUTS = {
    (): "gpt-2",
    ("Digits",): "smollm",
    (LETTERS + r"\p{N}{1,3}" + OTHERS,): "llama-bpe",
    (LETTERS + r"\p{N}" + OTHERS,): "qwen2",
}
ELSE = "llama.cpp's own convert_hf_to_gguf.py may read the baked checkpoint"


def check_installed() -> None:
    """Raise `BadInput` if the extra is not installed."""
    for name, package in (("gguf", "gguf"), ("llama_cpp", "llama-cpp-python")):
        if find_spec(name) is None:
            raise BadInput(
                f'GGUF needs {package}, which is not installed: pip install "tpatcher[gguf]"'
            )


def export(model: Model, directory: Path, texts: Sequence[str]) -> None:
    """Write model.gguf into a directory; llama.cpp answers these texts with it first.

    `NotExported` if it reads or answers one of them in another way.
    """
    from gguf import GGUFWriter

    if not isinstance(model.task, Causal) or model.net.config.model_type != "llama":
        raise UnsupportedArchitecture(
            f"{type(model.net).__name__} is not written as GGUF, only what can be baked as a "
            f"Llama; {ELSE}"
        )
    path = directory / FILE
    writer = GGUFWriter(path, "llama")
    try:
        _config(writer, model)
        _tokenizer(writer, model)
        for name, tensor in _tensors(model.net):
            writer.add_tensor(name, *_stored(tensor))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    _compare(model, path, texts)


def _config(writer: Any, model: Model) -> None:
    """What the net's config says."""
    config, rope = model.net.config, _rope(model.net)
    writer.add_name(model.name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(rope)


def _rope(net: Any) -> float:
    """The base of the rotary positions."""
    if net.model.rotary_emb.attention_scaling != 1:
        raise UnsupportedArchitecture(f"this model's rotary positions scale attention; {ELSE}")
    return float(net.config.rope_parameters["rope_theta"])


def _tokenizer(writer: Any, model: Model) -> None:
    """The tokenizer: byte-level merges alone, which most models of today have."""
    from gguf import TokenType

    tokenizer, task = model.tokenizer, model.task
    if not tokenizer.is_fast:
        raise UnsupportedArchitecture(
            f"a tokenizer without a tokenizer.json is not written; {ELSE}"
        )
    about = json.loads(tokenizer.backend_tokenizer.to_str())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_cut(about))
    by_id = {i: token for token, i in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for i in range(model.net.config.vocab_size):
        tokens.append(by_id.get(i, f"[PAD{i}]"))
        known = TokenType.NORMAL if i in by_id else TokenType.UNUSED
        if i in added:
            known = TokenType.CONTROL if added[i].special else TokenType.USER_DEFINED
        kinds.append(known)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = about["model"]["merges"]
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in merges])
    assert isinstance(task, Causal)
    if (first := tokenizer.bos_token_id) is not None:
        writer.add_bos_token_id(first)
    writer.add_add_bos_token(tokenizer("a").input_ids[:1] == [first])
    end, *more = dict.fromkeys(task.ends)
    writer.add_eos_token_id(end)
    if more:
        writer.add_eot_token_id(more[0])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _cut(about: dict[str, Any]) -> str:
    """llama.cpp's name for how a tokenizer cuts text before it merges."""
    before = about["pre_tokenizer"] or {}
    parts = before.get("pretokenizers", [before])
    seen = [
        part["pattern"].get("Regex", "") if part.get("type") == "Split" else part.get("type")
        for part in parts
    ]
    normal = (about["normalizer"] or {}).get("type")
    bytewise = bool(seen) and seen[-1] == "ByteLevel" and not about["model"].get("byte_fallback")
    if not bytewise or tuple(seen[:-1]) not in CUTS or normal not in (None, "NFC"):
        raise UnsupportedArchitecture(
            f"a tokenizer that cuts text by {seen or 'nothing'} is not written as GGUF; {ELSE}"
        )
    return CUTS[tuple(seen[:-1])]


def _tensors(net: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights under llama.cpp's names; queries and keys in its order of rotary pairs."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    config, names = net.config, get_tensor_name_map(MODEL_ARCH.LLAMA, net.config.num_hidden_layers)
    for name, tensor in net.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        if (kind := name.split(".")[-2]) in heads:
            halves = tensor.view(heads[kind], 2, config.head_dim // 2, -1)
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise UnsupportedArchitecture(f"llama.cpp has no name for {name}; {ELSE}")
        yield found, tensor.detach().cpu()
    positions = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu")
    plain = _rope(net) ** (-positions / config.head_dim)
    stretched = plain / net.model.rotary_emb.inv_freq.float().cpu()
    if not torch.allclose(stretched, torch.ones_like(stretched), atol=1e-4):  # Llama 3's are
        yield "rope_freqs.weight", stretched


def _stored(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor as the writer takes it: vectors in float32, matrices in their own dtype."""
    from gguf import GGMLQuantizationType, quants

    if tensor.dtype == torch.float16 and tensor.dim() > 1:
        return (tensor.numpy(),)
    plain = tensor.float().contiguous().numpy()
    if tensor.dtype == torch.bfloat16 and tensor.dim() > 1:
        kind = GGMLQuantizationType.BF16
        return quants.quantize(plain, kind), None, kind
    return (plain,)


def _compare(model: Model, path: Path, texts: Sequence[str]) -> None:
    """Let llama.cpp read and answer the texts; `NotExported` if it does so in another way."""
    from llama_cpp import Llama

    task = model.task
    assert isinstance(task, Causal)
    said = task.predict(model.net, texts)
    asked = [task.ids(text) for text in texts]
    room = max(len(a) + len(s) for a, s in zip(asked, said, strict=True)) + 1
    exact = {"type_k": 0, "type_v": 0}  # its cache in float32
    other = Llama(str(path), n_ctx=room, n_batch=room, verbose=False, **exact)
    try:
        for text, ids, answer in zip(texts, asked, said, strict=True):
            first = task.special["add_special_tokens"]
            if other.tokenize(task.prompt(text).encode(), add_bos=first, special=True) != ids:
                raise NotExported(f"llama.cpp cuts {text!r} into other tokens; {ELSE}")
            steps = other.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0)
            got = [token for token, _ in zip(steps, answer, strict=False)]
            if got != answer:
                raise NotExported(
                    f"llama.cpp answers {text!r} with {task.decode([got])[0]!r} and not "
                    f"{task.decode([answer])[0]!r}"
                )
    finally:
        other.close()
