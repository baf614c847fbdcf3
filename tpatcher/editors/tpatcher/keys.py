"""A key in a few passes over the memory: the half-space that holds the mistake and nothing else.

With μ and Σ the memory's mean and covariance, Σ⁻¹(q − μ) is a first direction. The best one
has the largest margin in whitened space, and only the few memory queries nearest to the
boundary decide it: take the top responders, solve the small dual, take the top responders again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from tpatcher.editors import deadline
from tpatcher.editors.tpatcher.dual import Dual
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.nets.products import some_of

MAX_PASSES = 16  # over the memory, where the mistake lies deep inside it
# One block of so many is looked at where a key will be solved again by all of them: of forty zsRE
# mistakes a half gives the GR that all give, a quarter 0.02 less. Of labels, whose key is solved
# once, a half of it would give FEVER 0.06 less.
SAMPLE = 2


@dataclass(frozen=True)
class Negatives:
    """All queries that a new key must stay away from: N of the memory, and m further ones.

    An index below N is a row of the memory, one from N on a row of `extra`.
    """

    memory: Memory
    target: Tensor  # (n,): a query that has this answer already may fire neuron i freely
    is_mistake: Tensor  # rows of the memory that are the mistake itself
    extra: Tensor  # (m, d): past edits, and the example's other positions
    extra_answers: Tensor  # (m,)
    must_avoid: frozenset[int] = frozenset()  # indices that count although they have the target
    contrast: int = 0  # how many of `extra`, the last, are of contrast texts
    own: range = range(0)  # which of `extra` are the example's other positions
    # By how much less than from others a key may keep away from those: they are exactly known, and
    # whatever of the query tells them apart will be a little otherwise in a rephrasing.
    own_margin: float = 1.0

    def pushed(self, values: Tensor, indices: Tensor, mistake: Tensor) -> Tensor:
        """Points or responses, with the example's other positions as far away as they count."""
        if self.own_margin == 1:
            return values
        n = len(self.memory)
        own = (indices >= n + self.own.start) & (indices < n + self.own.stop)
        out = values.clone()
        out[own] = mistake + (values[own] - mistake) / self.own_margin
        return out

    def respond(self, keys: Tensor, known: Tensor | None = None) -> Tensor:
        """Responses of the memory and of `extra` to some keys, (n, N + m).

        `known` (n, N) are the memory's, if they need not be looked for.
        """
        memory = self.memory.respond(keys) if known is None else known
        return torch.cat([memory, keys.float() @ self.extra.T], dim=1)

    def nearest_of_some(self, keys: Tensor, width: int) -> list[Tensor]:
        """For each key, the indices of those at risk that respond most, of a part of the memory."""
        some = some_of(len(self.memory), SAMPLE)
        response = self.memory.respond(keys, SAMPLE).where(self.at_risk[:, some], -torch.inf)
        best = response.topk(min(width, response.shape[1]), dim=1)
        return [some[best.indices[i][best.values[i].isfinite()]] for i in range(len(keys))]

    @cached_property
    def at_risk(self) -> Tensor:
        """Which queries each neuron could hurt, (n, N + m)."""
        answers = self.memory.answers
        if answers is None:
            out = torch.ones(len(self.target), len(self.memory), dtype=torch.bool)
        else:
            out = answers[None] != self.target[:, None]
        out[:, self.is_mistake] = False
        out = torch.cat([out, self.extra_answers[None] != self.target[:, None]], dim=1)
        out[:, list(self.must_avoid)] = True
        return out

    def likely(self, key: Tensor, i: int, limit: int) -> Tensor:
        """Indices known without a pass over the memory: those that must be avoided, and the few
        of `extra` that neuron i could hurt and that respond most."""
        free = self.extra_answers == self.target[i]
        response = (self.extra @ key.float()).masked_fill(free, -torch.inf)
        best = response.topk(min(limit, int((~free).sum()))).indices
        avoid = torch.tensor(sorted(self.must_avoid), dtype=torch.long)
        return torch.cat([avoid, len(self.memory) + best]).unique()

    def queries_at(self, indices: Tensor) -> Tensor:
        """The queries at these indices, (…, d)."""
        n = len(self.memory)
        out = torch.empty(len(indices), self.extra.shape[1])
        inside = indices < n
        out[inside] = self.memory.rows(indices[inside])
        out[~inside] = self.extra[indices[~inside] - n]
        return out


@dataclass(frozen=True)
class Key:
    """A direction and how the negatives respond to it, before any scale or threshold."""

    direction: Tensor  # (d,)
    response: float  # of the mistake
    weakest: float  # the least response of the mistake and its other views
    nearest_negative: float  # the largest response of what is at risk, contrast texts apart
    nearest_contrast: float  # the largest response of contrast texts at risk
    nearest: list[int]  # the negatives that respond most, by their indices
    responses: Tensor  # (N + m,): of all negatives
    at_risk: Tensor  # (N + m,)

    @property
    def top(self) -> float:
        """The largest response of anything at risk."""
        return max(self.nearest_negative, self.nearest_contrast)


def solve(
    positives: list[Tensor],
    negatives: Negatives,
    duals: int = 2,
    width: int = 128,
    known: Sequence[Key] = (),
    passes: int = MAX_PASSES,
) -> list[Key]:
    """One key per neuron; positives[i] (p, d) are the mistake's query and its other views.

    Keys that are `known` are taken if they tell apart what has to be.
    """
    memory = negatives.memory
    if known:
        directions = torch.stack([key.direction for key in known]).double()
        responses = torch.stack([key.responses[: len(memory)] for key in known])
        found = _responses(positives, negatives, directions, width, responses)
        if all(key.response > key.top for key in found):
            return found
    white = [memory.whiten(p) for p in positives]  # each (p, d)
    directions = torch.stack([w.mean(0) for w in white])
    # the example's other positions are often the nearest of all: be clear of them from the start
    begin = memory.key(directions)
    candidates = [negatives.likely(begin[i], i, width) for i in range(len(white))]
    duals_of = [Dual(w) for w in white]
    for i, near in enumerate(_whitened(negatives, candidates, white)):
        if len(near):
            duals_of[i].add(near)
            directions[i] = duals_of[i].direction(beside=torch.zeros_like(near[:1]))
    found = []
    for turn in range(passes):
        deadline.check()
        if turn == 0 and duals > 1:  # what is nearest to a first direction need not be known well
            nearest = negatives.nearest_of_some(memory.key(directions), width)
        else:
            found = _responses(positives, negatives, memory.key(directions), width)
            if turn >= duals and all(key.response > key.top for key in found):
                break
            nearest = [torch.tensor(key.nearest, dtype=torch.long) for key in found]
        new = [n[~torch.isin(n, c)] for n, c in zip(nearest, candidates, strict=True)]
        for i, more in enumerate(_whitened(negatives, new, white)):
            candidates[i] = torch.cat([candidates[i], new[i]])
            duals_of[i].add(more)
            if len(candidates[i]):
                directions[i] = duals_of[i].direction()
    return found


def _whitened(
    negatives: Negatives, indices: list[Tensor], mistake: Sequence[Tensor]
) -> list[Tensor]:
    """The negatives at some indices for each neuron, whitened; what several have, once."""
    every = torch.cat(indices).unique()
    rows = negatives.memory.whiten(negatives.queries_at(every))
    return [
        negatives.pushed(rows[torch.searchsorted(every, some)], some, own[0])
        for some, own in zip(indices, mistake, strict=True)
    ]


def _responses(
    positives: list[Tensor],
    negatives: Negatives,
    directions: Tensor,
    width: int,
    known: Tensor | None = None,
) -> list[Key]:
    """One pass over all negatives: how they respond to each direction (n, d)."""
    directions = directions / directions.norm(dim=-1, keepdim=True)
    responses = negatives.respond(directions, known)
    at_risk = torch.where(negatives.at_risk, responses, -torch.inf)
    own = [positives[i][0].double() @ directions[i] for i in range(len(positives))]
    if negatives.own_margin < 1:
        every = torch.arange(at_risk.shape[1])
        at_risk = torch.stack(
            [negatives.pushed(row, every, o.float()) for row, o in zip(at_risk, own, strict=True)]
        )
    best = at_risk.topk(min(width, at_risk.shape[1]), dim=1)
    end = at_risk.shape[1] - negatives.contrast
    others, contrast = (
        pad(part, (0, 1), value=-torch.inf).amax(1) for part in (at_risk[:, :end], at_risk[:, end:])
    )
    return [
        Key(
            direction=directions[i].float(),
            response=float(own[i]),
            weakest=float((positives[i].double() @ directions[i]).min()),
            nearest_negative=float(others[i]),
            nearest_contrast=float(contrast[i]),
            nearest=best.indices[i][best.values[i].isfinite()].tolist(),
            responses=responses[i],
            at_risk=negatives.at_risk[i],
        )
        for i in range(len(positives))
    ]
