"""The direction of largest margin between a mistake and what it is told apart from."""

from copy import copy

import numpy as np
import torch
from torch import Tensor

from tpatcher.editors import deadline

# Pairs and steps of one dual. 16 rephrasings and two duals have 4,352 pairs and take 100 steps.
MAX_PAIRS, MAX_STEPS = 4_608, 2_000
AT_ONCE = 16  # violators that join a solution at first
RIDGE = 1e-6  # of a pair's square, in the dual


class Dual:
    """Views of a mistake (p, d), and points to tell them apart from, of which more may come.

    What is known of the earlier points is kept, so that with more of them only what is new is
    worked out, and the solution is looked for from the last one on.
    """

    def __init__(self, positives: Tensor) -> None:
        self.p, self.center = len(positives), positives.mean(0)
        self.points = positives - self.center  # near ones by their differences
        self.products = self.points @ self.points.T
        self.distance = positives.new_empty(self.p, 0)
        self.weights = dict[tuple[int, int], float]()  # of the pairs that the direction is made of

    def add(self, others: Tensor) -> None:
        """Tell the mistake apart from these points (m, d) too."""
        new = others - self.center
        across = self.points @ new.T
        upper, lower = torch.cat([self.products, across], 1), torch.cat([across.T, new @ new.T], 1)
        self.products = torch.cat([upper, lower])
        self.points = torch.cat([self.points, new])
        # exact, because identical points are inseparable
        exact = "donot_use_mm_for_euclid_dist"
        further = torch.cdist(self.points[: self.p], new, compute_mode=exact)
        self.distance = torch.cat([self.distance, further], 1)

    def direction(self, beside: Tensor | None = None) -> Tensor:
        """The direction u (d,) with the largest min of (p − o)·u / |u| over all pairs of both.

        Points `beside` count this time alone.
        """
        if beside is not None:
            other = copy(self)
            other.add(beside)
            found = other.direction()
            self.weights = other.weights
            return found
        m = self.distance.shape[1]
        distance = self.distance.flatten()
        size = (self.points[: self.p] + self.center).norm()
        pairs = (distance > 1e-9 * size).nonzero()[:, 0]
        if len(pairs) > MAX_PAIRS:  # the far ones hardly decide it, and could take hours
            pairs = pairs[distance[pairs].topk(MAX_PAIRS, largest=False).indices]
        if not len(pairs):
            return self.center
        i, j = pairs.numpy() // m, pairs.numpy() % m
        last = np.zeros((self.p, m))
        for (a, b), weight in self.weights.items():
            if b < m:
                last[a, b] = weight
        alpha = _max_margin(self.products.numpy(), i, j + self.p, last[i, j])
        self.weights = {(int(i[k]), int(j[k])): float(alpha[k]) for k in alpha.nonzero()[0]}
        weights = np.zeros(len(self.points))
        np.add.at(weights, i, alpha)
        np.add.at(weights, j + self.p, -alpha)
        return torch.from_numpy(weights) @ self.points


def _max_margin(
    products: np.ndarray, i: np.ndarray, j: np.ndarray, begin: np.ndarray, tolerance: float = 1e-3
) -> np.ndarray:
    """Weights of the pairs i − j of points whose sum is their max-margin direction.

    It is the point of the pairs' hull nearest to 0. Its dual, min ½αᵀGα − 1ᵀα over α ≥ 0 with G the
    pairs' products, by an active set: solve on the support, step back to the border where a weight
    would turn negative, add whoever violates. G is never made: all is in the points' products.
    It begins at any weights, as those of a part of the pairs, or at zeros. Several violators at a
    time save steps, as long as none of them has to be taken out again.
    """
    diagonal = products.diagonal()
    squares = diagonal[i] + diagonal[j] - 2 * products[i, j]
    nearest = int(np.argmin(squares))
    alpha, support = begin.copy(), begin.nonzero()[0].tolist() or [nearest]
    at_once = AT_ONCE
    for _ in range(min(4 * len(i), MAX_STEPS)):
        deadline.check()
        a, b = i[support], j[support]
        rows = products[a] - products[b]
        gram = rows[:, a] - rows[:, b]
        gram.flat[:: len(gram) + 1] *= 1 + RIDGE
        solved = np.linalg.solve(gram, np.ones(len(support)))
        if solved.min() > 0:
            alpha[:] = 0
            alpha[support] = solved
            # not @: numpy's own threads would go on spinning beside torch's
            response = np.einsum("s,sm->m", solved, rows)  # of each point
            slack = response[i] - response[j] - 1
            slack[support] = 0
            worst = np.argpartition(slack, min(at_once, len(slack)) - 1)[:at_once]
            violated = slack[worst]
            if violated.min() >= -tolerance:
                break
            support += worst[violated <= 0.5 * violated.min()].tolist()
        else:
            at_once = max(1, at_once // 2)
            now = alpha[support]
            falling = solved < 0
            share = (now[falling] / (now[falling] - solved[falling])).min()
            alpha[support] = now + share * (solved - now)
            support = [s for s in support if alpha[s] > 1e-12] or [nearest]
    return alpha
