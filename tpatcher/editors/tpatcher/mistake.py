"""A mistake as T-Patcher sees it: the answer positions where another token wins."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tpatcher.errors import NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.positions import Positions
from tpatcher.nets import ffn
from tpatcher.patches.neurons import Neurons, rows


@dataclass(frozen=True)
class Mistake:
    """One example, its target, and what the model does at each position of it."""

    model: Model
    example: Example
    layer: int
    target: list[int]
    at: Positions
    logits: Tensor  # (P, labels or tokens), as greedy decoding sees them

    @classmethod
    @torch.no_grad()
    def find(cls, model: Model, example: Example, layer: int = -1) -> "Mistake":
        """Look at an example; `NotFixed` if the generation config forbids its answer."""
        target = model.task.target(example.text, example.answer)
        at = Positions(model, example.text, target, layer)
        logits = at.now()
        mistake = cls(model, example, layer, target, at, logits)
        chosen = logits.gather(1, mistake.tokens[:, None])[:, 0]
        if chosen.isneginf().any():
            said = model.task.decode([target])[0]
            raise NotFixed(
                f"the model's generation config forbids the answer {said!r}: it bars or replaces "
                f"token {int(mistake.tokens[chosen.isneginf()][0])}"
            )
        return mistake

    @property
    def queries(self) -> Tensor:
        return self.at.seen.queries

    @property
    def tokens(self) -> Tensor:
        return self.at.seen.tokens.to(self.logits.device)

    @cached_property
    def wrong(self) -> Tensor:
        """The positions where the target does not win, or only by rounding."""
        return losing(self.logits, self.tokens, self.rounding).nonzero()[:, 0]

    @property
    def rounding(self) -> float:
        return self.model.tail.rounding if self.model.tail else 1e-3

    @torch.no_grad()
    def right_with(self, keys: Tensor, bias: Tensor, values: Tensor) -> bool:
        """Whether the target wins everywhere with these neurons, under teacher forcing."""
        logits = self.at.process(self.at.logits(keys, bias, values))
        return not losing(logits, self.tokens, self.rounding).any()


def losing(logits: Tensor, tokens: Tensor, rounding: float) -> Tensor:
    """Where (P,) the token does not have the largest logit by more than rounding."""
    chosen = logits.gather(1, tokens[:, None])
    others = logits.scatter(1, tokens[:, None], -torch.inf).max(-1).values
    return chosen[:, 0] - others <= rounding


@dataclass(frozen=True)
class Past:
    """The answer positions of the fixes that a model wears in one layer, newest per text."""

    queries: Tensor  # (m, d)
    states: Tensor
    tokens: Tensor
    ids: list[str]  # (m,): whose position it is

    @classmethod
    def of(cls, model: Model, example: Example, layer: int) -> "Past":
        """All live fixes but those of the very text that is being fixed."""
        newest: dict[str, Neurons] = {}
        for patch in model.patches:
            if isinstance(patch, Neurons) and patch.layer == layer:
                newest[patch.example.text.strip() if patch.example else patch.id] = patch
        newest.pop(example.text.strip(), None)
        kept = list(newest.values())
        none = torch.empty(0, ffn.find(model.net, layer).width)
        return cls(
            queries=torch.cat([p.queries for p in kept]) if kept else none,
            states=torch.cat([p.states for p in kept]) if kept else none,
            tokens=torch.cat([p.tokens for p in kept])
            if kept
            else torch.empty(0, dtype=torch.long),
            ids=[p.id for p in kept for _ in p.tokens],
        )


def neurons(
    mistake: Mistake,
    keys: Tensor,
    bias: Tensor,
    values: Tensor,
    editor: str,
    report: Mapping[str, object],
) -> Neurons:
    """The patch, with the older patches that fire on its queries."""
    model, seen = mistake.model, mistake.at.seen
    older, older_bias, _ = rows(model.patches, mistake.layer)
    whose = [p.id for p in model.patches if isinstance(p, Neurons) and p.layer == mistake.layer
             for _ in p.bias]  # fmt: skip
    fires: set[str] = set()
    if len(older):
        fired = (seen.queries.cpu() @ older.T + older_bias > 0).any(0)
        fires = {whose[i] for i in fired.nonzero()[:, 0].tolist()}
    return Neurons(
        example=mistake.example,
        editor=editor,
        report={**report, "fired by older": sorted(fires)},
        layer=mistake.layer,
        keys=keys,
        bias=bias,
        values=values,
        queries=seen.queries,
        states=seen.states,
        tokens=seen.tokens,
        depends_on=tuple(sorted(fires)),
    )
