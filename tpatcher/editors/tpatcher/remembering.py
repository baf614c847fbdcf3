"""Traffic that nobody complained of: once answered rightly, it is memory for the edits after it."""

from collections.abc import Sequence
from typing import Any

import torch

from tpatcher.editors.tpatcher.memory import ARRAYS, Memory
from tpatcher.models.model import Model


def remember(memory: Memory, model: Model, texts: Sequence[str], layer: int = -1) -> Memory:
    """The memory, and the model's answers to further texts; μ and Σ stay those of the fit.

    All arrays are made anew, so a memory that lies on disk is read into RAM.
    """
    more = Memory.collect(model, texts, layer=layer, reads=memory.reads, background=False)
    more.owner = None if more.owner is None else more.owner + len(memory.texts)
    if more.text_index is not None and memory.text_states is not None:
        more.text_index = more.text_index + len(memory.text_states)
    arrays: dict[str, Any] = {}
    for name in (name for name in ARRAYS if name != "held_out"):
        one, other = getattr(memory, name), getattr(more, name)
        arrays[name] = None if one is None or other is None else torch.cat([one, other.to(one)])
    made = Memory(
        **arrays, held_out=memory.held_out, texts=[*memory.texts, *texts], base=memory.base
    )
    made.mean, made.factor, made.phrases = memory.mean, memory.factor, memory.phrases
    return made
