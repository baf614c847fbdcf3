"""A stock checkpoint with the patches inside, which needs no tpatcher to run.

The patched layer becomes as wide as it is with its patches, and the other layers of the stack
get as many neurons of nothing but zeros, because a config has one width for all of them.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tpatcher import files
from tpatcher.batches import batches
from tpatcher.checkpoints import gguf as llama_cpp
from tpatcher.checkpoints import onnx as graph
from tpatcher.checkpoints.llama import as_llama
from tpatcher.errors import NotExported, UnsupportedArchitecture
from tpatcher.models.loading import AUTO, load
from tpatcher.models.model import Model
from tpatcher.models.training import logits
from tpatcher.nets import ffn
from tpatcher.nets.generation import Generate
from tpatcher.patches.neurons import Neurons

# Where configs say how wide a feed-forward layer is.
WIDTHS = ("decoder_ffn_dim", "intermediate_size", "ffn_dim", "n_inner", "hidden_dim", "d_ff")
CLOSE = 1e-4  # logits of the baked model may differ by this much
PACK = "share the patches as a pack instead (save_patches), which works on every architecture"


def bake(
    model: Model,
    directory: str | Path,
    texts: Sequence[str] = (),
    *,
    onnx: bool = False,
    onnx_of: Model | None = None,
    gguf: bool = False,
    spare: int = 0,
) -> float:
    """Write the model with its patches as a stock checkpoint; returns the largest logit difference.

    The checkpoint is loaded by the plain Auto classes and compared with the model on the patches'
    own examples and on `texts`. If an answer or a logit differs, nothing is left behind. With
    `onnx`, the same model is written as model.onnx too, and compared as well; or `onnx_of`, the
    model as it was before `by_position`: a graph can hold keys that read the text. With `gguf`, a
    model that is baked as a Llama is written as model.gguf too, and llama.cpp must answer alike.
    With `spare`, every layer has so many neurons of zeros more: later fixes change no shapes.
    """
    if onnx:
        graph.check_installed()
    if gguf:
        llama_cpp.check_installed()
    with files.new_directory(directory) as made:
        _baked(model, spare).save_pretrained(made)
        model.tokenizer.save_pretrained(made)
        asked = [p.example.text for p in model.patches if p.example] + list(texts) + ["hello"]
        asked = list(dict.fromkeys(asked))
        # how long an answer may be is no part of the checkpoint: servers would take it for all
        longest = model.task.config.max_new_tokens if isinstance(model.task, Generate) else None
        other = load(made, task=model.task.name, max_new_tokens=longest)
        apart = _compare(model, other, asked)
        if onnx:
            apart = max(apart, graph.export(onnx_of.twin() if onnx_of else other, made, asked))
        if gguf:
            llama_cpp.export(other, made, asked)
    return apart


def _baked(model: Model, spare: int) -> PreTrainedModel:
    """A stock net with the patches among its weights."""
    _check_plain(model)
    other = [p.kind for p in model.patches if not isinstance(p, Neurons) and p.kind != "weights"]
    if other:
        raise UnsupportedArchitecture(
            f"a patch of the kind {other[0]!r} is not made of weights; {PACK}"
        )
    neurons = [p for p in model.patches if isinstance(p, Neurons)]
    if reading := [p.id for p in neurons if p.reads_text]:
        raise UnsupportedArchitecture(
            f"fix {reading[0]} reads the whole text, as {len(reading) - 1} others do, and a stock "
            f"checkpoint cannot: solve them again with checkpoints.by_position, or {PACK}"
        )
    layers = range(-len(ffn.layers(model.net)), 0)
    more = max(len(model.rows(layer)) for layer in layers) + spare
    if not more:
        return model.net
    config, wider = _widened(model, more)
    state = {name: torch.zeros_like(t, device="cpu") for name, t in wider.state_dict().items()}
    for name, tensor in model.net.state_dict().items():
        state[name][tuple(map(slice, tensor.shape))] = tensor
    for layer in layers:
        place, rows = ffn.find(model.net, layer), model.rows(layer)
        conv = isinstance(wider.get_submodule(place.second), Conv1D)  # (in, out), not (out, in)
        first, second = state[f"{place.first}.weight"], state[f"{place.second}.weight"]
        first, second = (first.T, second) if conv else (first, second.T)
        begin, end = len(first) - more, len(first) - more + len(rows)
        first[begin:end], second[begin:end] = rows.keys, rows.values
        state[f"{place.first}.bias"][begin:end] = rows.bias
        if place.up is not None:
            state[f"{place.up}.bias"][begin:] = 1
    net: PreTrainedModel = AUTO[model.task.name].from_config(config)
    net.load_state_dict(state)
    if model.task.generates:
        net.generation_config = deepcopy(model.net.generation_config)
    return net.to(model.net.dtype).eval()


def _check_plain(model: Model) -> None:
    """Refuse a base whose weights are not simply its own: they would have to be changed first."""
    config = model.net.config
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedArchitecture(
            f"{model.name} is quantised, and fixes baked into it would be rounded with it: load "
            f"the base without quantize= and bake that, or {PACK}"
        )
    if any("lora_" in name for name, _ in model.net.named_parameters()):
        raise UnsupportedArchitecture(
            f"{model.name} has an adapter of peft beside its weights: merge it first "
            f"(merge_and_unload), fix that model and bake it, or {PACK}"
        )


def _widened(model: Model, more: int) -> tuple[PreTrainedConfig, PreTrainedModel]:
    """A config whose feed-forward layers have `more` neurons and biases, and its net on meta."""
    place = ffn.find(model.net)
    stock: Any = ffn.unwrap(model.net.get_submodule(place.second))
    axis = 0 if isinstance(stock, Conv1D) else 1
    shape = list(stock.weight.shape)
    shape[axis] += more
    lacking = f"has no setting for the width of its layers (looked for {', '.join(WIDTHS)})"
    stock_config = as_llama(model.net.config)
    for name in WIDTHS:
        if not hasattr(stock_config, name):
            continue
        config = deepcopy(stock_config)
        setattr(config, name, shape[axis])
        if hasattr(config, "mlp_bias"):  # Llama's biases, which can be switched on
            config.mlp_bias = True
        with torch.device("meta"):
            wider: PreTrainedModel = AUTO[model.task.name].from_config(config)
        if list(wider.get_submodule(place.second).weight.shape) != shape:  # type: ignore[union-attr, arg-type]
            continue
        firsts = [wider.get_submodule(n) for n in (place.first, place.up) if n]
        if not place.fused and all(getattr(one, "bias", None) is not None for one in firsts):
            return config, wider
        lacking = "has no bias in its feed-forward layers, and a patch needs one"
    raise UnsupportedArchitecture(f"{type(model.net).__name__} {lacking}; {PACK}")


@torch.no_grad()
def _compare(model: Model, other: Model, texts: Sequence[str]) -> float:
    """The largest difference of logits along the answers; `NotExported` if it is too large."""
    apart = 0.0
    for part in batches(texts, 32):
        said = model.task.predict(model.net, part)
        if other.task.predict(other.net, part) != said:
            raise NotExported(
                f"the baked model gives another answer to one of {list(part[:3])} …; {PACK}"
            )
        forced = model.task.force(part, said)
        mine, theirs = (logits(m, m.net, forced).cpu() for m in (model, other))
        apart = max(apart, float((mine - theirs).abs().max()))
    if apart > CLOSE * (1 if model.net.dtype == torch.float32 else 100):
        raise NotExported(f"the baked model's logits differ by {apart:.2g}; {PACK}")
    return apart
