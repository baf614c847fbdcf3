"""A value on the tail alone: whatever fires the neuron, however weakly, gets the target."""

from collections.abc import Callable

import torch
from torch import Tensor


def values(
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
