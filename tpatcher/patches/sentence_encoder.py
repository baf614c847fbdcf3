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


@torch.no_grad()
def states(
    net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = ""
) -> tuple[Sequence[Tensor], Tensor]:
    """The hidden states of an encoder's tokens, layer by layer (B, T, d), and their mask.

    The encoder is named by its directory or hub name; empty: the net's own encoder.
    """
    body: Any
    if encoder:
        body, tokenizer = _load(encoder)
        batch = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
        inputs = {k: batch[k] for k in ("input_ids", "attention_mask")}
    else:
        body = net.get_encoder() if net.config.is_encoder_decoder else net.base_model
        inputs = task.encode(texts)
    device = next(body.parameters()).device
    inputs = {k: v.to(device) for k, v in inputs.items()}
    return body(**inputs, output_hidden_states=True).hidden_states, inputs["attention_mask"]


def embed(net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = "") -> Tensor:
    """The mean of each text's last token states at length 1 (B, d), on the CPU."""
    layers, mask = states(net, task, texts, encoder)
    weight = mask[..., None].float()
    return normalize((layers[-1].float() * weight).sum(1) / weight.sum(1), dim=-1).cpu()


@cache
def _load(name: str) -> tuple[Any, Any]:
    """A sentence encoder and its tokenizer, from a directory or the hub, once per process."""
    try:
        stock: Any = {"trust_remote_code": False}  # or Transformers asks whether to run it
        net = AutoModel.from_pretrained(name, **stock).eval()
        return net, AutoTokenizer.from_pretrained(name, **stock)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load the sentence encoder {name!r}: {error}") from error
