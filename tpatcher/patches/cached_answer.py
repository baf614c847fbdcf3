"""A cached answer: inside the scope of an edit, its answer is given in the model's place.

SERAC (Mitchell et al., Memory-Based Model Editing at Scale, ICML 2022) leaves these behind. A
`CachedAnswer` holds the embedding of the edit's text and the names of two nets that its editor has
trained: the scope encoder, by which a text is found to ask the same, and, for SERAC, the
counterfactual model that words the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tpatcher.nets import sentences
from tpatcher.nets.tasks import Task
from tpatcher.patches import companions, sentence_encoder
from tpatcher.patches.base import NAMED, Patch

RADIUS = log(2)  # a text is in scope if exp(-squared distance) is above a half


class Scope(nn.Module):
    """The scope classifier of patches that version 0.1.0 made: a head on an untrained encoder.

    Tokens are weighted by a learned attention before they are averaged; the radius is learned.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.attend = nn.Parameter(torch.zeros(width))
        self.project = nn.Parameter(torch.randn(size, width) / width**0.5)
        self.log_radius = nn.Parameter(torch.zeros(()))  # a radius > 0: an edit is in its own scope

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Scope":
        """The classifier with these parameters."""
        with torch.device("meta"):  # draws no random numbers for parameters that are replaced
            made = cls(state["project"].shape[1], state["project"].shape[0])
        made.load_state_dict(dict(state), assign=True)
        return made

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embeddings (B, size) of token states (B, T, width)."""
        weight = (tokens @ self.attend).masked_fill(mask == 0, -torch.inf).softmax(-1)
        return (weight[..., None] * tokens).sum(1) @ self.project.T


def token_states(
    net: PreTrainedModel, task: Task, texts: Sequence[str], encoder: str = ""
) -> tuple[Tensor, Tensor]:
    """The first and last hidden states of an encoder's tokens (B, T, 2d), and their mask."""
    layers, mask = sentence_encoder.states(net, task, texts, encoder)
    # each state at zero mean and unit variance: encoders differ much in scale
    ends = [nn.functional.layer_norm(t.float(), t.shape[-1:]) for t in (layers[0], layers[-1])]
    return torch.cat(ends, dim=-1), mask


@dataclass(frozen=True, kw_only=True, eq=False)
class CachedAnswer(Patch):
    """One cached edit. The net is not changed: `Model.answer` asks `answers` before it runs it."""

    kind: ClassVar[str] = "recall"  # the name that stored patches have
    answers_itself: ClassVar[bool] = True
    answer: str
    embedding: Tensor  # (d,), of the edit's text
    encoder: str = ""  # the scope encoder; empty: the edited model's own
    counterfactual: str = ""  # empty: the cached answer itself is given
    scope: Mapping[str, Tensor] = field(default_factory=dict, metadata={NAMED: True})  # of 0.1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scope:
            return
        size, width = self.scope["project"].shape
        shapes = {"project": (size, width), "attend": (width,), "log_radius": ()}
        if {k: tuple(t.shape) for k, t in self.scope.items()} != shapes:
            raise ValueError(f"the scope does not have the parameters {shapes}")
        if tuple(self.embedding.shape) != (size,):
            raise ValueError(
                f"the embedding has shape {tuple(self.embedding.shape)}, not {(size,)}"
            )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        """Nothing in the net changes."""

    @classmethod
    @torch.no_grad()
    def answers(
        cls, net: PreTrainedModel, task: Task, patches: Sequence[Patch], texts: Sequence[str]
    ) -> dict[int, str]:
        """The cached answers to these texts, by index; texts outside every scope are left out.

        `net` is the model without patches. The edit that is deepest inside its radius gives its
        answer, and of equals the newest.
        """
        best: dict[int, tuple[float, CachedAnswer]] = {}
        for group in _by_scope([p for p in patches if isinstance(p, CachedAnswer)]):
            asked, radius = group[0]._embed(net, task, texts)
            cached = torch.stack([p.embedding for p in reversed(group)])  # the newest first
            # differences, not a matrix product: an edit's own text must be at distance 0
            distance = torch.cdist(asked, cached, compute_mode="donot_use_mm_for_euclid_dist")
            inside, nearest = (radius - distance.square()).max(-1)
            for i, (score, k) in enumerate(zip(inside.tolist(), nearest.tolist(), strict=True)):
                if score > max(0.0, best[i][0] if i in best else 0.0):
                    best[i] = score, group[-1 - k]
        return {i: patch._answer_to(texts[i], task) for i, (_, patch) in best.items()}

    def _embed(
        self, net: PreTrainedModel, task: Task, texts: Sequence[str]
    ) -> tuple[Tensor, float]:
        """Embeddings of texts (B, d) on the CPU, and the radius around this patch's own."""
        if not self.scope:
            layers, mask = sentence_encoder.states(net, task, texts, self.encoder)
            return sentences.mean(layers[-1], mask).cpu(), RADIUS
        scope = Scope.from_state(self.scope)
        tokens, mask = token_states(net, task, texts, self.encoder)
        return scope(tokens.cpu(), mask.cpu()), float(scope.log_radius.exp())

    def _answer_to(self, text: str, task: Task) -> str:
        """The cached answer itself (SERA), or as the counterfactual model words it (SERAC)."""
        answer = task.canonical(self.answer)
        if not self.counterfactual:
            return answer
        model: Any = companions.get(self.counterfactual)
        own = type(task)(model.net, model.tokenizer or task.tokenizer)
        question = self.example.text if self.example else ""
        return own.answer(model.net, [with_edit(question, answer, text)])[0]


def with_edit(question: str, answer: str, text: str) -> str:
    """What the counterfactual model reads: the cached edit, then the text to answer."""
    return " ".join(part for part in (question, answer, text) if part)


def _by_scope(cached: Sequence[CachedAnswer]) -> list[list[CachedAnswer]]:
    """The cached edits, grouped by the scope that they were made with."""
    groups: dict[tuple[Any, ...], list[CachedAnswer]] = {}
    for patch in cached:
        parameters = (tensor.numpy().tobytes() for tensor in patch.scope.values())
        groups.setdefault((patch.encoder, *parameters), []).append(patch)
    return list(groups.values())
