"""Sentence encoders: the token states of a text, by the edited model itself or by another one."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from tpatcher.errors import BadInput
from tpatcher.nets.tasks import Task
from tpatcher.patches import companions


@torch.no_grad()
def states(
    net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = ""
) -> tuple[Sequence[Tensor], Tensor]:
    """The hidden states of an encoder's tokens, layer by layer (B, T, d), and their mask.

    The encoder is named by its directory or hub name, or is one that an editor has trained; empty:
    the net's own encoder.
    """
    if encoder.startswith(companions.PREFIX):
        trained = companions.get(encoder)
        return run(trained.net, trained.tokenizer, task, texts)
    if encoder:
        return run(*_load(encoder), task, texts)
    return run(own(net), None, task, texts)


def own(net: PreTrainedModel) -> Any:
    """The part of a net that reads texts."""
    return net.get_encoder() if net.config.is_encoder_decoder else net.base_model


def run(
    body: Any, tokenizer: Any, task: Task, texts: Sequence[str]
) -> tuple[Sequence[Tensor], Tensor]:
    """The hidden states of an encoder's tokens and their mask; without tokenizer, the task's."""
    if tokenizer is not None:
        inputs = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
    else:
        inputs = task.encode(texts)
    device = next(body.parameters()).device
    inputs = {k: inputs[k].to(device) for k in ("input_ids", "attention_mask")}
    return body(**inputs, output_hidden_states=True).hidden_states, inputs["attention_mask"]


def mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """The mean of each text's token states (B, T, d), in float32."""
    weight = mask[..., None].float()
    return (tokens.float() * weight).sum(1) / weight.sum(1)


def embed(net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = "") -> Tensor:
    """The mean of each text's last token states at length 1 (B, d), on the CPU."""
    layers, mask = states(net, task, texts, encoder)
    return normalize(mean(layers[-1], mask), dim=-1).cpu()


def load(name: str) -> tuple[Any, Any]:
    """A sentence encoder and its tokenizer, from a directory or the hub."""
    try:
        stock: Any = {"trust_remote_code": False}  # or Transformers asks whether to run it
        net = AutoModel.from_pretrained(name, **stock).eval()
        return net, AutoTokenizer.from_pretrained(name, **stock)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load the sentence encoder {name!r}: {error}") from error


_load = cache(load)  # once per process: nobody trains it
