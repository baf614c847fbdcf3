"""A key in a few passes over the memory: the half-space that holds the mistake and nothing else.

With μ and Σ the memory's mean and covariance, Σ⁻¹(q − μ) is a first direction. The best one
has the largest margin in whitened space, and only the few memory queries nearest to the
boundary decide it: take the top responders, solve the small dual, take the top responders again.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory

PATIENCE = 16  # passes at most, where the mistake lies deep in the crowd


@dataclass(frozen=True)
class Crowd:
    """All queries that a new key must stay away from: the memory, and a few more.

    A query whose answer already is the neuron's target may fire it freely (`target`, (n,));
    `skip` are memory rows that are the mistake itself; `more` are past edits and the example's
    other positions.
    """

    memory: Memory
    target: Tensor  # (n,)
    skip: Tensor  # rows of the memory
    more: Tensor  # (m, d)
    more_answers: Tensor  # (m,)
    hurt: frozenset[int] = frozenset()  # indices that count although their answer is the target

    def respond(self, keys: Tensor) -> Tensor:
        """Responses of memory and more, (n, N + m)."""
        return torch.cat([self.memory.respond(keys), keys.float() @ self.more.T], dim=1)

    @cached_property
    def could(self) -> Tensor:
        """Which of memory and more each neuron could hurt, (n, N + m)."""
        answers = self.memory.answers
        if answers is None:
            out = torch.ones(len(self.target), len(self.memory), dtype=torch.bool)
        else:
            out = answers[None] != self.target[:, None]
        out[:, self.skip] = False
        out = torch.cat([out, self.more_answers[None] != self.target[:, None]], dim=1)
        out[:, list(self.hurt)] = True
        return out

    def near(self, key: Tensor, i: int, width: int) -> Tensor:
        """What is known without a pass over the memory, as indices: the hurt, and the few of
        `more` that neuron i could hurt and that respond most."""
        free = self.more_answers == self.target[i]
        response = (self.more @ key.float()).masked_fill(free, -torch.inf)
        best = response.topk(min(width, int((~free).sum()))).indices
        hurt = torch.tensor(sorted(self.hurt), dtype=torch.long)
        return torch.cat([hurt, len(self.memory) + best]).unique()

    def take(self, rows: Tensor) -> Tensor:
        """The queries at these indices."""
        n = len(self.memory)
        out = torch.empty(len(rows), self.more.shape[1])
        inside = rows < n
        out[inside] = self.memory.queries[rows[inside]].float()
        out[~inside] = self.more[rows[~inside] - n]
        return out


@dataclass(frozen=True)
class Key:
    """A direction and how the crowd answers to it, before any scale or threshold."""

    key: Tensor  # (d,)
    own: float  # the mistake's response
    top: float  # the largest response of what could be hurt
    nearest: list[int]  # who responds most, as indices into the crowd
    response: Tensor  # (N + m,): of the whole crowd
    could: Tensor  # (N + m,): which of it could be hurt


def keys(positives: list[Tensor], crowd: Crowd, rounds: int = 2, width: int = 128) -> list[Key]:
    """One key per neuron; positives[i] (p, d) are the mistake's query and its other views."""
    memory = crowd.memory
    white = [memory.whiten(p) for p in positives]  # each (p, d)
    directions = torch.stack([w.mean(0) for w in white])
    # the example's other positions are often the nearest of all: be clear of them from the start
    begin = memory.key(directions)
    candidates = [crowd.near(begin[i], i, width) for i in range(len(white))]
    known = [memory.whiten(crowd.take(rows)) for rows in candidates]
    for i, w in enumerate(white):
        if len(known[i]):
            directions[i] = _apart(w, torch.cat([known[i], torch.zeros_like(w[:1])]))
    found: list[Key] = []
    for turn in range(PATIENCE):
        matrix = memory.key(directions)
        matrix = matrix / matrix.norm(dim=-1, keepdim=True)
        response = crowd.respond(matrix)
        inside = torch.where(crowd.could, response, -torch.inf)
        best = inside.topk(min(width, inside.shape[1]), dim=1)
        found = [
            Key(
                key=matrix[i].float(),
                own=float(positives[i][0].double() @ matrix[i]),
                top=float(best.values[i, 0]),
                nearest=best.indices[i][best.values[i].isfinite()].tolist(),
                response=response[i],
                could=crowd.could[i],
            )
            for i in range(len(white))
        ]
        if turn >= rounds and all(one.own > one.top for one in found):
            break
        for i, w in enumerate(white):
            near = torch.tensor(found[i].nearest, dtype=torch.long)
            new = near[~torch.isin(near, candidates[i])]
            candidates[i] = torch.cat([candidates[i], new])
            known[i] = torch.cat([known[i], memory.whiten(crowd.take(new))])
            if len(known[i]):
                directions[i] = _apart(w, known[i])
    return found


def _apart(positives: Tensor, crowded: Tensor) -> Tensor:
    """The direction (d,) along which these positives are furthest from these others."""
    pairs = (positives[:, None] - crowded[None]).flatten(0, 1)  # (p·c, d)
    pairs = pairs[pairs.norm(dim=-1) > 1e-9 * positives.norm()]  # from its double none can be apart
    return widest(pairs) if len(pairs) else positives.mean(0)


def widest(pairs: Tensor, tolerance: float = 1e-3) -> Tensor:
    """The direction u with the largest min of pairs·u / |u|: the point of the hull nearest to 0.

    Its dual, min ½αᵀGα − 1ᵀα over α ≥ 0 with G the Gram matrix, by an active set: solve on the
    support, step back to the border where a weight would turn negative, add whoever violates.
    """
    gram = (pairs @ pairs.T).numpy()
    gram[np.diag_indices_from(gram)] *= 1 + 1e-6
    alpha = np.zeros(len(gram))
    support: list[int] = [int(np.argmin(np.diag(gram)))]
    for _ in range(4 * len(gram)):
        rows = gram[support]
        solved = np.linalg.solve(rows[:, support], np.ones(len(support)))
        if solved.min() > 0:
            alpha[:] = 0
            alpha[support] = solved
            # not @: numpy's own threads would go on spinning beside torch's
            slack = np.einsum("s,sn->n", solved, rows) - 1
            worst = int(np.argmin(slack))
            if slack[worst] >= -tolerance or worst in support:
                break
            support.append(worst)
        else:
            now = alpha[support]
            falling = solved < 0
            share = (now[falling] / (now[falling] - solved[falling])).min()
            alpha[support] = now + share * (solved - now)
            support = [i for i in support if alpha[i] > 1e-12] or [int(np.argmin(np.diag(gram)))]
    return torch.from_numpy(alpha) @ pairs
