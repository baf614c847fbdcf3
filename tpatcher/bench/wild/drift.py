"""Drift: what edits do to a language model where nobody asked for a change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tpatcher.example import Document
from tpatcher.models.everywhere import Reading, readings
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.causal import Causal

TOKENS = 64  # of an answer to a general prompt
PASSAGE, PASSAGES = 500, 24  # characters of a held-out passage; how many of them


@dataclass(frozen=True)
class Drift:
    """How far an edited model is from itself before the edits."""

    perplexity: float  # on held-out text, before
    ratio: float  # perplexity after, divided by before
    kl: float  # mean KL divergence of the next token's distribution, in nats
    winners: float  # share of positions where the same token is the most probable
    prompts: float  # share of general prompts answered the same, token for token


def drift(
    model: Model,
    held_out: Sequence[str],
    prompts: Sequence[str],
    said: Sequence[list[int]] | None = None,
) -> Drift:
    """The drift of a model's edits on held-out text and on general prompts.

    `said` is what the model said to the prompts before, if that is known already.
    """
    before = model.unpatched()
    own, kl, same, n = [0.0, 0.0], 0.0, 0, 0
    for one in readings(before, [Document(text) for text in held_out]):
        first, last = _logprobs(model, one)
        told = torch.tensor(one.ids[1:])[:, None]
        for i, found in enumerate((first, last)):
            own[i] -= float(found.gather(1, told).sum())
        kl += float((first.exp() * (first - last)).sum())
        same += int((first.argmax(-1) == last.argmax(-1)).sum())
        n += len(told)
    pairs = list(zip(said or long(before, prompts), long(model, prompts), strict=True))
    return Drift(
        perplexity=math.exp(own[0] / n),
        ratio=math.exp((own[1] - own[0]) / n),
        kl=kl / n,
        winners=same / n,
        prompts=sum(a == b for a, b in pairs) / len(pairs),
    )


def general_prompts() -> list[str]:
    """Fifty prompts of everyday use."""
    return Path(__file__).with_name("prompts.txt").read_text(encoding="utf-8").splitlines()


def documentation() -> list[str]:
    """Passages of Python's own documentation, which comes with Python: text not in any memory."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    step = len(text) // PASSAGES
    return [text[i * step : i * step + PASSAGE] for i in range(PASSAGES)]


@torch.inference_mode()
def _logprobs(model: Model, one: Reading) -> tuple[Tensor, Tensor]:
    """Log-probabilities of every next token of a reading, before the edits and after them."""
    task, tail, rows = model.task, model.tail, model.rows(-1)
    assert isinstance(task, Causal)
    if model.tail_is_exact and tail is not None:  # one pass tells both
        layer = ffn.find(model.net)
        probe = model.probe(-1, "text" if rows.width > layer.width else "position")
        seen = probe.seen(task.read([one.ids], [one.begin]))
        state, delta = tail.state(seen), rows.delta(layer.act, seen[probe.names[0]])
        both = [tail(state), tail(tail.shift(state, delta))]
    else:
        ids = torch.tensor([one.ids], device=model.net.device)
        both = [m.net(ids).logits[0].float() for m in (model.unpatched(), model)]
    first, last = (logits[:-1].log_softmax(-1).cpu() for logits in both)
    return first, last


@torch.inference_mode()
def long(model: Model, prompts: Sequence[str], batch: int = 10) -> list[list[int]]:
    """The model's answers to prompts, greedy, up to TOKENS tokens."""
    assert isinstance(model.task, Causal)
    task = model.task.limited(TOKENS)
    parts = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    return [answer for part in parts for answer in task.predict(model.net, part)]
