"""Sentence encoders: the token states of a text, by the edited model itself or by another one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from tpatcher.nets.sentences import known, mean
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
        return run(*known(encoder), task, texts)
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


def embed(net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = "") -> Tensor:
    """The mean of each text's last token states at length 1 (B, d), on the CPU."""
    layers, mask = states(net, task, texts, encoder)
    return normalize(mean(layers[-1], mask), dim=-1).cpu()
