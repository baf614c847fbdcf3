"""A cached answer: inside the scope of an edit, its answer is given in the model's place.

SERAC (Mitchell et al., Memory-Based Model Editing at Scale, ICML 2022) leaves these behind. A
`CachedAnswer` holds everything it needs: the embedding of the edit's text, the scope classifier
that decides which texts ask the same, and, for SERAC, the counterfactual model that words the
answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tpatcher.errors import BadInput
from tpatcher.nets.tasks import Task
from tpatcher.patches import sentence_encoder
from tpatcher.patches.base import NAMED, Patch
from tpatcher.patches.pointer_network import Counterfactual


class Scope(nn.Module):
    """SERAC's scope classifier: a text within a learned radius of an edit asks the same question.

    It is a head on a sentence encoder. Tokens are weighted by a learned attention before they are
    averaged, because names decide what is asked and the words around them do not. Distances are
    squared Euclidean ones, as in SERAC.
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

    def log_odds(self, distance: Tensor) -> Tensor:
        """The log-odds of being in scope at these squared distances."""
        return self.log_radius.exp() - distance


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
    embedding: Tensor  # (size,), of the edit's text
    scope: Mapping[str, Tensor] = field(metadata={NAMED: True})  # state of the Scope
    counterfactual: Mapping[str, Tensor] = field(default_factory=dict, metadata={NAMED: True})
    encoder: str = ""  # of the scope classifier; empty: the edited model's own

    def __post_init__(self) -> None:
        super().__post_init__()
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

        `net` is the model without patches. The edit with the highest log-odds gives its answer,
        and of equals the newest.
        """
        best: dict[int, tuple[float, CachedAnswer]] = {}
        for group in _by_scope([p for p in patches if isinstance(p, CachedAnswer)]):
            scope = Scope.from_state(group[0].scope)
            tokens, mask = token_states(net, task, texts, group[0].encoder)
            asked = scope(tokens.cpu(), mask.cpu())
            cached = torch.stack([p.embedding for p in reversed(group)])  # the newest first
            # differences, not a matrix product: an edit's own text must be at distance 0
            distance = torch.cdist(asked, cached, compute_mode="donot_use_mm_for_euclid_dist")
            odds, nearest = scope.log_odds(distance.square()).max(-1)
            for i, (score, k) in enumerate(zip(odds.tolist(), nearest.tolist(), strict=True)):
                if score > max(0.0, best[i][0] if i in best else 0.0):
                    best[i] = score, group[-1 - k]
        return {i: patch._answer_to(texts[i], task) for i, (_, patch) in best.items()}

    def _answer_to(self, text: str, task: Task) -> str:
        """The cached answer itself (SERA), or as the counterfactual model words it (SERAC)."""
        answer = task.canonical(self.answer)
        if not self.counterfactual:
            return answer
        model = Counterfactual.from_state(self.counterfactual)
        worded = model.answer(task.tokenizer, answer, text)
        try:
            return task.canonical(worded)
        except BadInput:  # the counterfactual model wrote something that is no label
            return worded


def _by_scope(cached: Sequence[CachedAnswer]) -> list[list[CachedAnswer]]:
    """The cached edits, grouped by the scope classifier that they were made with."""
    groups: dict[tuple[Any, ...], list[CachedAnswer]] = {}
    for patch in cached:
        parameters = (tensor.numpy().tobytes() for tensor in patch.scope.values())
        groups.setdefault((patch.encoder, *parameters), []).append(patch)
    return list(groups.values())
