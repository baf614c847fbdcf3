"""Training a patch as the paper does: its losses (Section 4.2), and Adam on all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tpatcher.nets.activation import thresholds

# Of the drawn views, with keys, bias and values.
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def S(v: Tensor, k: int) -> Tensor:
    """The mean of the k largest exp(v) (Eq. 14), over all elements of v."""
    flat = v.flatten()
    return flat.topk(min(k, flat.numel())).values.exp().mean()


def l_a(activation: Tensor, k_a: int = 5) -> Tensor:
    """Activation loss (Eq. 10, and of several patches): each q_e·k_p + b_p should be large."""
    return S(-activation, k_a)


def l_m1(memory: Tensor, beta: float, k: int = 1000) -> Tensor:
    """Memory loss, first term (Eq. 13): M·k_p + b_p should stay at or below β."""
    return S(memory - beta, k)


def l_m2(memory: Tensor, activation: Tensor, gamma: float, k: int = 1000) -> Tensor:
    """Memory loss, second term (Eq. 15): the mistake should respond more, by a margin of γ.

    The printed formula subtracts γ, which would ask for less than no margin; the text is followed.
    """
    return S(memory - activation + gamma, k)


@dataclass(frozen=True)
class Schedule:
    """The numbers of the paper, and those that its runs used without saying so."""

    a: float = 1.0
    m: float = 10.0
    k: int = 1000
    k_a: int = 5
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    clip: float = 5.0
    repeats: int = 8
    steps: int = 2000
    first_check: int = 100
    check_every: int = 25
    use_la: bool = True
    use_lm1: bool = True
    use_lm2: bool = True
    beta: float | None = None  # the activation function's own if not given; γ is −β


@dataclass(frozen=True)
class Views:
    """The mistake as training sees it: dropout views of its answer positions, drawn once."""

    queries: Tensor  # (views, P, d)
    wrong: Tensor  # (n,): the positions that get a neuron each


def train(
    views: Views,
    memory: Sequence[Tensor],
    held_out: Tensor,
    act: Callable[[Tensor], Tensor],
    l_e: Loss,
    right: Callable[[Tensor, Tensor, Tensor], bool],
    l_more: Callable[[Tensor, Tensor, Tensor], Tensor] | None,
    schedule: Schedule,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Keys, bias and values of n neurons, and the steps it took.

    The memory may come in parts (N, d), because to join them would be to hold it twice.
    `l_e` is the task's loss on some of the views, with these keys, bias and values;
    `right` says whether the example is right with them; `l_more` is a further loss.
    """
    beta, gamma = thresholds(act) if schedule.beta is None else (schedule.beta, -schedule.beta)
    s, draw = schedule, torch.Generator().manual_seed(seed)
    queries = views.queries[:, views.wrong].mean(0)  # (n, d)
    keys = (queries / queries.square().sum(-1, keepdim=True)).clone().requires_grad_()
    bias = torch.zeros(len(keys), device=keys.device, requires_grad=True)
    base = torch.rand(keys.shape, generator=draw).to(keys.device).requires_grad_()  # v'
    scale = torch.full_like(base, 5.0).requires_grad_()  # n
    parameters = [keys, bias, base, scale]
    adam = torch.optim.Adam(parameters, lr=s.learning_rate, weight_decay=s.weight_decay)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, factor=0.5, patience=1)
    best = float("inf")
    step = 0
    for step in range(1, s.steps + 1):
        drawn = torch.randint(len(views.queries), (s.repeats,), generator=draw)
        # A_i: each patch on its own query, every repeat of it
        own = (views.queries[drawn][:, views.wrong] * keys).sum(-1) + bias  # (repeats, n)
        loss = l_e(drawn, keys, bias, base * scale)
        if s.use_la:
            loss = loss + s.a * l_a(own, s.k_a)
        if s.use_lm1 or s.use_lm2:
            response = torch.cat([part @ keys.T for part in memory]) + bias  # (N, n)
            loss = loss + s.m * memory_loss(response, own.mean(0), beta, gamma, s)
        if l_more is not None:
            loss = loss + s.m * l_more(keys, bias, base * scale)
        # of these alone: backward() would also work out, and leave behind, those of the model
        slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
        for one, slope in zip(parameters, slopes, strict=True):
            one.grad = slope
        torch.nn.utils.clip_grad_norm_(parameters, s.clip)
        adam.step()
        if step >= s.first_check and step % s.check_every == 0:
            with torch.no_grad():
                response = held_out @ keys.T + bias
                away = float(memory_loss(response, own.mean(0), beta, gamma, s))
                plateau.step(away)
                if right(keys, bias, base * scale) and away >= best * 0.999:
                    break
                best = min(best, away)
    return keys.detach(), bias.detach(), (base * scale).detach(), step


def memory_loss(response: Tensor, own: Tensor, beta: float, gamma: float, s: Schedule) -> Tensor:
    """l_m = l_m1 + l_m2 of the memory's responses (N, n), whichever of them are used."""
    total = response.new_zeros(())
    if s.use_lm1:
        total = total + l_m1(response, beta, s.k)
    if s.use_lm2:
        total = total + l_m2(response, own, gamma, s.k)
    return total


def smoothed(logits: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy (…, classes) with label smoothing: the task's own training loss, l_e."""
    flat = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, tokens.reshape(-1), label_smoothing=smoothing)
