"""A cache of edits beside the model: inside an edit's scope the cached answer is given (SERAC).

A `CachedAnswer` brings everything it needs along: the embedding of its text, the scope
classifier that tells which texts ask the same, and, for SERAC, the counterfactual model that
words the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from tpatcher.errors import BadInput
from tpatcher.nets.tasks import Task
from tpatcher.patches.base import NAMED, Patch
from tpatcher.patches.pointer_network import Counterfactual


class Scope(nn.Module):
    """A sentence encoder's head with a learned threshold: near enough means the same question.

    Tokens are weighed by a learned attention before they are averaged: names decide what is
    asked, the words around them do not. Distances are squared and Euclidean, as in SERAC.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.attend = nn.Parameter(torch.zeros(width))
        self.project = nn.Parameter(torch.randn(size, width) / width**0.5)
        self.log_radius = nn.Parameter(torch.zeros(()))  # > 0: an edit is in its own scope

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> "Scope":
        with torch.device("meta"):  # no random numbers are drawn for what is replaced at once
            made = cls(state["project"].shape[1], state["project"].shape[0])
        made.load_state_dict(dict(state), assign=True)
        return made

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embeddings (B, size) of token states (B, T, width)."""
        weight = (tokens @ self.attend).masked_fill(mask == 0, -torch.inf).softmax(-1)
        return (weight[..., None] * tokens).sum(1) @ self.project.T

    def inside(self, distance: Tensor) -> Tensor:
        """The log-odds of being in scope, by squared distance."""
        return self.log_radius.exp() - distance


@torch.no_grad()
def states(
    net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = ""
) -> tuple[Tensor, Tensor]:
    """Token states (B, T, 2d), the first and last of an encoder, and their mask."""
    body: Any
    if encoder:
        body, tokenizer = loaded(encoder)
        batch = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
        inputs = {k: batch[k] for k in ("input_ids", "attention_mask")}
    else:
        body = net.get_encoder() if net.config.is_encoder_decoder else net.base_model
        inputs = task.encode(texts)
    device = next(body.parameters()).device
    inputs = {k: v.to(device) for k, v in inputs.items()}
    seen = body(**inputs, output_hidden_states=True).hidden_states
    first, last = (normalised(t.float()) for t in (seen[0], seen[-1]))
    return torch.cat([first, last], dim=-1), inputs["attention_mask"]


def normalised(tokens: Tensor) -> Tensor:
    """Each state without mean and at unit variance: encoders differ much in scale."""
    return nn.functional.layer_norm(tokens, tokens.shape[-1:])


@cache
def loaded(name: str) -> tuple[Any, Any]:
    """A sentence encoder and its tokenizer, from a directory or the hub."""
    try:
        return AutoModel.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load the sentence encoder {name!r}: {error}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class CachedAnswer(Patch):
    """One cached edit. It acts in `Model.answer`; the net itself is untouched."""

    kind: ClassVar[str] = "recall"
    answer: str
    embedding: Tensor  # (size,)
    scope: Mapping[str, Tensor] = field(metadata={NAMED: True})
    counterfactual: Mapping[str, Tensor] = field(default_factory=dict, metadata={NAMED: True})
    encoder: str = ""  # of the scope classifier; empty: the edited model's own

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        """Nothing in the net changes."""


@torch.no_grad()
def lookup(
    net: PreTrainedModel, task: Task, patches: Sequence[Patch], texts: Sequence[str]
) -> dict[int, str]:
    """The answers to those of the texts that are in the scope of a cached edit."""
    cached = [p for p in patches if isinstance(p, CachedAnswer)]
    best: dict[int, tuple[float, CachedAnswer]] = {}
    for group in by_scope(cached):
        scope = Scope.of(group[0].scope)
        inputs, mask = states(net, task, texts, group[0].encoder)
        embedded = scope(inputs.cpu(), mask.cpu())
        # differences, not a matrix product: the edit's own text must come out at distance 0
        against = torch.stack([p.embedding for p in reversed(group)])
        distance = torch.cdist(embedded, against, compute_mode="donot_use_mm_for_euclid_dist")
        odds, which = scope.inside(distance.square()).max(-1)  # of equals the newest, first here
        for i, (score, k) in enumerate(zip(odds.tolist(), which.tolist(), strict=True)):
            if score > max(0.0, best[i][0] if i in best else 0.0):
                best[i] = score, group[len(group) - 1 - k]
    return {i: decode(task, patch, texts[i]) for i, (_, patch) in best.items()}


def by_scope(cached: Sequence[CachedAnswer]) -> list[list[CachedAnswer]]:
    """The cached edits, by the scope classifier that they were made with."""
    groups: list[list[CachedAnswer]] = []
    for patch in cached:
        for group in groups:
            same = group[0].encoder == patch.encoder
            if same and all(torch.equal(t, patch.scope[k]) for k, t in group[0].scope.items()):
                group.append(patch)
                break
        else:
            groups.append([patch])
    return groups


def decode(task: Task, patch: CachedAnswer, text: str) -> str:
    """The cached answer: itself (SERA), or as the counterfactual model gives it (SERAC)."""
    if not patch.counterfactual:
        return task.canonical(patch.answer)
    model = Counterfactual.of(patch.counterfactual)
    said = model.say(task.tokenizer, task.canonical(patch.answer), text)
    try:
        return task.canonical(said)
    except BadInput:  # no label of the model
        return said
