"""A stock checkpoint with the patches inside, which needs no tpatcher to run.

The patched layer becomes as wide as it is with its patches, and the other layers of the stack
get as many neurons of nothing but zeros, because a config has one width for all of them.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tpatcher import files
from tpatcher.checkpoints import onnx as graph
from tpatcher.errors import NotExported, UnsupportedArchitecture
from tpatcher.models.loading import AUTO, load
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.rows import Rows
from tpatcher.patches.neurons import Neurons

# Where configs say how wide a feed-forward layer is.
WIDTHS = ("decoder_ffn_dim", "intermediate_size", "ffn_dim", "n_inner", "hidden_dim", "d_ff")
CLOSE = 1e-4  # logits of the baked model may differ by this much


def bake(
    model: Model, directory: str | Path, texts: Sequence[str] = (), *, onnx: bool = False
) -> float:
    """Write the model with its patches as a stock checkpoint; returns the largest logit difference.

    The checkpoint is loaded by the plain Auto classes and compared with the model on the patches'
    own examples and on `texts`. If an answer or a logit differs, nothing is left behind. With
    `onnx`, the same model is written as model.onnx too, and compared as well.
    """
    if onnx:
        graph.check_installed()
    with files.new_directory(directory) as made:
        _baked(model).save_pretrained(made)
        model.tokenizer.save_pretrained(made)
        asked = [p.example.text for p in model.patches if p.example] + list(texts) + ["hello"]
        asked = list(dict.fromkeys(asked))
        other = load(made, task=model.task.name)
        apart = _compare(model, other, asked)
        if onnx:
            apart = max(apart, graph.export(other, made, asked))
    return apart


def _baked(model: Model) -> PreTrainedModel:
    """A stock net with the patches among its weights."""
    other = [p.kind for p in model.patches if not isinstance(p, Neurons) and p.kind != "weights"]
    if other:
        raise UnsupportedArchitecture(
            f"a patch of the kind {other[0]!r} is not made of weights; {PACK}"
        )
    layers = range(-len(ffn.layers(model.net)), 0)
    more = max(len(model.rows(layer)) for layer in layers)
    if not more:
        return model.net
    config, like = _widened(model, more)
    state = model.net.state_dict()
    for layer in layers:
        place = ffn.find(model.net, layer)
        rows = _padded(model.rows(layer).to("cpu"), more)
        _grow(state, like, place.first, rows.keys, rows.bias)
        if place.up is not None:
            _grow(state, like, place.up, torch.zeros_like(rows.keys), torch.ones(more))
        stock = ffn.unwrap(model.net.get_submodule(place.second))
        axis = 0 if isinstance(stock, Conv1D) else 1
        new = rows.values if axis == 0 else rows.values.T
        name = f"{place.second}.weight"
        state[name] = torch.cat([state[name], new.to(state[name])], dim=axis)
        _complete(state, like, place.second)
    net: PreTrainedModel = AUTO[model.task.name].from_config(config)
    net.load_state_dict(state)
    if model.task.name != "classify":
        net.generation_config = deepcopy(model.net.generation_config)
    return net.to(model.net.dtype).eval()


PACK = "share the patches as a pack instead (save_patches), which every architecture can wear"


def _widened(model: Model, more: int) -> tuple[PreTrainedConfig, PreTrainedModel]:
    """A config whose feed-forward layers have `more` neurons and biases, and its net on meta."""
    place = ffn.find(model.net)
    stock: Any = ffn.unwrap(model.net.get_submodule(place.second))
    axis = 0 if isinstance(stock, Conv1D) else 1
    shape = list(stock.weight.shape)
    shape[axis] += more
    lacking = f"has no setting for the width of its layers (looked for {', '.join(WIDTHS)})"
    for config in _variants(model.net.config, shape[axis]):
        with torch.device("meta"):
            like: PreTrainedModel = AUTO[model.task.name].from_config(config)
        if list(like.get_submodule(place.second).weight.shape) != shape:  # type: ignore[union-attr, arg-type]
            continue
        firsts = [like.get_submodule(n) for n in (place.first, place.up) if n]
        if not place.fused and all(getattr(one, "bias", None) is not None for one in firsts):
            return config, like
        lacking = "has no bias in its feed-forward layers, and a patch needs one"
    raise UnsupportedArchitecture(f"{type(model.net).__name__} {lacking}; {PACK}")


def _variants(config: PreTrainedConfig, width: int) -> Iterator[PreTrainedConfig]:
    """Configs with another width, and with biases where they can be switched on (Llama)."""
    for name in WIDTHS:
        if hasattr(config, name):
            for bias in ("mlp_bias", None):
                changed = deepcopy(config)
                setattr(changed, name, width)
                if bias is not None:
                    if not hasattr(config, bias):
                        continue
                    setattr(changed, bias, True)
                yield changed


def _padded(rows: Rows, n: int) -> Rows:
    """The neurons of one layer, with zeros up to n of them."""
    short, width = n - len(rows), rows.keys.shape[1]
    return rows + Rows(
        *(torch.zeros(shape) for shape in ((short, width), (short,), (short, width)))
    )


def _grow(state: dict[str, Tensor], like: nn.Module, name: str, keys: Tensor, bias: Tensor) -> None:
    """Add outputs to a first matrix and its bias."""
    weight = state[f"{name}.weight"]
    column = isinstance(like.get_submodule(name), Conv1D)
    new = keys.T if column else keys
    state[f"{name}.weight"] = torch.cat([weight, new.to(weight)], dim=1 if column else 0)
    old = state.get(f"{name}.bias")
    if old is None:  # switched on for the patches: nothing for the neurons that were there
        old = weight.new_zeros(weight.shape[1 if column else 0])
    state[f"{name}.bias"] = torch.cat([old, bias.to(old)])


def _complete(state: dict[str, Tensor], like: nn.Module, name: str) -> None:
    """Add a bias of zeros to a second matrix that got one switched on."""
    bias = getattr(like.get_submodule(name), "bias", None)
    if bias is not None and f"{name}.bias" not in state:
        state[f"{name}.bias"] = state[f"{name}.weight"].new_zeros(bias.shape)


@torch.no_grad()
def _compare(model: Model, other: Model, texts: Sequence[str]) -> float:
    """The largest difference of logits along the answers; `NotExported` if it is too large."""
    apart = 0.0
    for start in range(0, len(texts), 32):
        part = texts[start : start + 32]
        said = model.task.predict(model.net, part)
        if other.task.predict(other.net, part) != said:
            raise NotExported(
                f"the baked model gives another answer to one of {list(part[:3])} …; {PACK}"
            )
        forced = model.task.force(part, said)
        inputs = {k: v.to(model.net.device) for k, v in forced.inputs.items()}
        mine = model.task.logits(model.net(**inputs), forced).float()
        inputs = {k: v.to(other.net.device) for k, v in forced.inputs.items()}
        theirs = other.task.logits(other.net(**inputs), forced).float()
        apart = max(apart, float((mine.cpu() - theirs.cpu()).abs().max()))
    if apart > CLOSE * (1 if model.net.dtype == torch.float32 else 100):
        raise NotExported(f"the baked model's logits differ by {apart:.2g}; {PACK}")
    return apart
