"""A value on the tail alone: whatever fires the neuron, however weakly, gets the target."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpatcher.nets.tail import Tail

# Where cross-entropy's best value leaves another token above the target, logits are multiplied by
# these in turn, so that only the nearest of the others count: in the end the margin alone.
INVERSE_TEMPERATURES = (3.0, 10.0, 30.0, 100.0)


def descend(
    logits: Callable[[Tensor], Tensor],
    tokens: Tensor,
    scale: Tensor,
    confidence: float = 0.9,
    steps: int = 200,
    start: Tensor | None = None,
    rest: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Values (n, d), and the probability (levels, n) that they give the targets.

    `logits(v)` are those (levels, n, labels or tokens) of the n mistakes when each neuron's
    activation is at each level; `scale` (n, d) has the size of what the values are added to. `rest`
    (n,) is the log-sum-exp of tokens that are not among them: it takes probability, but never wins.
    Where the head cannot be that confident, it goes on until that gets no better.
    """
    size = scale.square().mean(-1, keepdim=True).sqrt()  # (n, 1)
    v = torch.zeros_like(scale) if start is None else start
    first, second = torch.zeros_like(v), torch.zeros_like(v)
    probability, before = torch.empty(0), torch.zeros(())
    for step in range(1, steps + 1):
        v.requires_grad_()
        out = logits(v)  # (levels, n, classes)
        all_of = out.logsumexp(-1)
        if rest is not None:
            all_of = torch.logaddexp(all_of, rest)
        chosen = out.gather(-1, tokens.expand(len(out), -1)[..., None])[..., 0] - all_of
        probability = chosen.detach().exp()
        done = (probability >= confidence).all(0)
        if step % 10 == 0:
            wins = (out.argmax(-1) == tokens).all()
            stalled = bool(wins) and (probability.mean() - before) < 0.01
            before = probability.mean()
            if stalled:
                break
        if done.all():
            break
        (slope,) = torch.autograd.grad(-chosen.sum(), v)
        # Adam by hand, because a neuron that is done must stay as it is
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope.square()
        move = (first / (1 - 0.9**step)) / ((second / (1 - 0.99**step)).sqrt() + 1e-12)
        v = torch.where(done[:, None], v.detach(), v.detach() - 0.2 * size * move)
    return v.detach(), probability


@dataclass(frozen=True)
class ValueProblem:
    """n positions of an answer, what a value does there, and what is to win."""

    tail: Tail
    states: Tensor  # (n, …), as the tail takes them
    scale: Tensor  # (n, d): the size of what a value is added to
    levels: Tensor  # (levels,) of activation
    barred: Tensor  # (n, tokens) that the generation config forbids
    tokens: Tensor  # (n,)
    sharp: float = 1.0
    # the states that the whole answer will have with these values: (n, d) to (P, …)
    answer: Callable[[Tensor], Tensor] | None = None

    def logits(self, v: Tensor) -> Tensor:
        """(levels, n, tokens), each position with its value at every level."""
        return self._by_level(self.tail(self._states(v)))

    def _states(self, v: Tensor) -> Tensor:
        delta = (self.levels[:, None, None] * v).flatten(0, 1)
        return self.tail.shift(self.states.repeat(len(self.levels), 1), delta)

    def _by_level(self, out: Tensor) -> Tensor:
        out = out.view(len(self.levels), *self.barred.shape)
        return self.sharp * out.masked_fill(self.barred, -torch.inf)

    @torch.no_grad()
    def evaluate(self, v: Tensor) -> "Evaluated":
        """What all tokens are with these values; the answer's come by the same use of the head."""
        states = self._states(v)
        more = states[:0] if self.answer is None else self.answer(v)
        every = self.tail(torch.cat([states, more]))
        out = self._by_level(every[: len(states)]).log_softmax(-1)
        chosen = out.gather(-1, self.tokens.expand(len(out), -1)[..., None])[..., 0]
        wins = out.argmax(-1) == self.tokens
        return Evaluated(v, wins, chosen.exp(), out[0], every[len(states) :])

    def subset(self, which: Tensor, sharp: float = 1.0) -> "ValueProblem":
        """Some of the positions."""
        return replace(
            self,
            states=self.states[which],
            scale=self.scale[which] / math.sqrt(sharp),
            barred=self.barred[which],
            tokens=self.tokens[which],
            sharp=sharp,
            answer=None,
        )

    def restricted_to(self, contend: Tensor) -> "ValueProblem | None":
        """With these tokens only, sorted; None where that would save nothing."""
        few = self.tail.restricted_to(contend) if 2 * len(contend) < self.barred.shape[1] else None
        if few is None:
            return None
        tokens = torch.searchsorted(contend, self.tokens)
        return replace(self, tail=few, barred=self.barred[:, contend], tokens=tokens)


@dataclass(frozen=True)
class Evaluated:
    """Values, judged against all tokens."""

    values: Tensor  # (n, d)
    wins: Tensor  # (levels, n): whether the targets do
    probability: Tensor  # (levels, n)
    logits: Tensor  # (n, tokens), at the first level
    answer: Tensor  # (P, tokens): logits of the whole answer, if they were asked for


def solve(problem: ValueProblem, logits: Tensor, confidence: float, contenders: int) -> Evaluated:
    """Values with which the targets win at all levels, as far as that can be.

    They are found against the few tokens that contend by these logits, and then judged against
    all; only positions that are still lost are then looked at with all.
    """
    contend, found = problem.tokens, torch.zeros_like(problem.scale)
    lost = torch.ones_like(problem.tokens, dtype=torch.bool)
    for width in (contenders, 8 * contenders):
        contend = _joined(contend, logits, width)
        some = problem.restricted_to(contend)
        if some is None:
            break
        rest = logits.index_fill(1, contend, -torch.inf).logsumexp(-1)
        found, reached = descend(
            some.logits, some.tokens, some.scale, confidence, start=found, rest=rest
        )
        judged = problem.evaluate(found)
        logits = judged.logits  # tokens that rose become contenders
        lost = ~(judged.wins & (judged.probability >= 0.9 * reached)).all(0)
        if not lost.any():
            return judged
    some = problem.subset(lost)
    found[lost], _ = descend(some.logits, some.tokens, some.scale, confidence, start=found[lost])
    judged = problem.evaluate(found)
    for sharp in INVERSE_TEMPERATURES:
        lost = ~judged.wins.all(0)
        if not lost.any():
            break
        contend = _joined(contend, judged.logits[lost], 8 * contenders)
        some = problem.subset(lost, sharp)
        some = some.restricted_to(contend) or some
        found[lost], _ = descend(
            some.logits, some.tokens, some.scale, confidence, start=found[lost]
        )
        judged = problem.evaluate(found)
    return judged


def _joined(known: Tensor, logits: Tensor, width: int) -> Tensor:
    """The known tokens and the best by these logits (n, tokens), sorted."""
    best = logits.topk(min(width, logits.shape[1])).indices
    return torch.cat([known, best.flatten()]).unique()
