"""Training a patch as the paper does (Section 4.2): its losses, and Adam on all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from tpatcher.editors.tpatcher.kl import kl_loss
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes, make_patch
from tpatcher.editors.tpatcher.solver import Solver
from tpatcher.models.positions import CachedPositions, RunPositions
from tpatcher.models.traces import dropout_views
from tpatcher.nets.activation import thresholds
from tpatcher.nets.rows import Activation, Rows
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.neurons import Neurons

EditLoss = Callable[[Tensor, Rows], Tensor]  # l_e of the drawn views, with these neurons


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


def smoothed(logits: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy (…, classes) with label smoothing: the task's own training loss, l_e."""
    flat = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, tokens.reshape(-1), label_smoothing=smoothing)


@dataclass(frozen=True)
class Paper(Solver):
    """The paper's solver: its numbers, and those that its runs used without saying so."""

    name: ClassVar[str] = "paper"
    a: float = 1.0
    m: float = 10.0
    k: int = 1000
    k_a: int = 5
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    clip: float = 5.0
    repeats: int = 8  # of the mistake in a batch, each under another draw of dropout
    views: int = 32  # draws of dropout, made once, that the repeats are taken from
    smoothing: float = 0.1  # of the edit loss when the task is generation
    steps: int = 2000
    first_check: int = 100
    check_every: int = 25
    neurons: int = 5  # the most per edit
    use_la: bool = True
    use_lm1: bool = True
    use_lm2: bool = True
    kl: bool = False  # the ablation of Table 3: a KL term in the place of l_m
    fixed_memory: bool = False  # the ablation that leaves past edits out of the memory
    beta: float | None = None  # the activation function's own if not given; γ is −β
    seed: int = 0

    def solve(self, mistake: Mistake, memory: Memory, past: PastFixes) -> Neurons:
        """Keys, bias and values by Adam on l_e + a·l_a + m·l_m. The example may stay wrong."""
        began = perf_counter()
        model, wrong = mistake.model, mistake.wrong[: self.neurons]
        queries, states = dropout_views(
            model, mistake.example.text, mistake.target, self.views, self.seed, mistake.layer
        )
        device = queries.device
        known = [memory.queries[: memory.split].float().to(device)]
        if not self.fixed_memory:
            known.append(past.queries.to(device))
        held_out = memory.queries[memory.split :].float().to(device)
        l_e = self._edit_loss(mistake, queries, states)
        solver, l_kl = self, None
        if self.kl:
            solver = replace(self, use_lm1=False, use_lm2=False)
            l_kl = kl_loss(mistake, memory, past, seed=self.seed)
        act = mistake.positions.ffn.act
        rows, steps = solver.train(
            Views(queries, wrong), known, held_out, act, l_e, mistake.right_with, l_kl
        )
        seconds = round(perf_counter() - began, 4)
        return make_patch(mistake, rows, Certificate(steps=steps, seconds=seconds))

    def _edit_loss(self, mistake: Mistake, queries: Tensor, states: Tensor) -> EditLoss:
        """l_e on some of the views: on their cached states, or by running the model."""
        here, tokens = mistake.positions, mistake.tokens
        smoothing = self.smoothing if mistake.model.task.generates else 0.0
        if isinstance(here, CachedPositions):
            tail, act = here.tail, here.ffn.act
            patched = here.shifted(states.flatten(0, 1), queries.flatten(0, 1)).view(states.shape)

            def on_tail(drawn: Tensor, rows: Rows) -> Tensor:
                delta = rows.delta(act, queries[drawn])
                state = tail.shift(patched[drawn].flatten(0, 1), delta.flatten(0, 1))
                return smoothed(tail(state), tokens.repeat(len(drawn)), smoothing)

            return on_tail
        assert isinstance(here, RunPositions)
        repeated = here.with_dropout(self.repeats)

        def run(drawn: Tensor, rows: Rows) -> Tensor:
            return smoothed(repeated.logits(rows), tokens.repeat(self.repeats), smoothing)

        return run

    def train(
        self,
        views: "Views",
        memory: Sequence[Tensor],
        held_out: Tensor,
        act: Activation,
        l_e: EditLoss,
        right: Callable[[Rows], bool],
        l_kl: Callable[[Rows], Tensor] | None = None,
    ) -> tuple[Rows, int]:
        """n neurons, and the steps that their training took.

        The memory may come in parts (N, d), because to join them would be to hold it twice.
        """
        beta, gamma = thresholds(act) if self.beta is None else (self.beta, -self.beta)
        draw = torch.Generator().manual_seed(self.seed)
        queries = views.queries[:, views.wrong].mean(0)  # (n, d)
        keys = (queries / queries.square().sum(-1, keepdim=True)).clone().requires_grad_()
        bias = torch.zeros(len(keys), device=keys.device, requires_grad=True)
        v = torch.rand(keys.shape, generator=draw).to(keys.device).requires_grad_()  # v'
        n = torch.full_like(v, 5.0).requires_grad_()
        parameters = [keys, bias, v, n]
        adam = torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, factor=0.5, patience=1)
        best = float("inf")
        step = 0
        for step in range(1, self.steps + 1):
            drawn = torch.randint(len(views.queries), (self.repeats,), generator=draw)
            # A_i: each patch on its own query, every repeat of it
            own = (views.queries[drawn][:, views.wrong] * keys).sum(-1) + bias  # (repeats, n)
            rows = Rows(keys, bias, v * n)
            loss = l_e(drawn, rows)
            if self.use_la:
                loss = loss + self.a * l_a(own, self.k_a)
            if self.use_lm1 or self.use_lm2:
                response = torch.cat([part @ keys.T for part in memory]) + bias  # (N, n)
                loss = loss + self.m * self.l_m(response, own.mean(0), beta, gamma)
            if l_kl is not None:
                loss = loss + self.m * l_kl(rows)
            # of these alone: backward() would also work out, and leave behind, those of the model
            slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter.grad = slope
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            adam.step()
            if step >= self.first_check and step % self.check_every == 0:
                with torch.no_grad():
                    rows = Rows(keys, bias, v * n)
                    away = float(self.l_m(rows.response(held_out), own.mean(0), beta, gamma))
                    plateau.step(away)
                    if right(rows) and away >= best * 0.999:
                        break
                    best = min(best, away)
        return Rows(keys.detach(), bias.detach(), (v * n).detach()), step

    def l_m(self, response: Tensor, own: Tensor, beta: float, gamma: float) -> Tensor:
        """l_m = l_m1 + l_m2 of the memory's responses (N, n), whichever of them are used."""
        total = response.new_zeros(())
        if self.use_lm1:
            total = total + l_m1(response, beta, self.k)
        if self.use_lm2:
            total = total + l_m2(response, own, gamma, self.k)
        return total


@dataclass(frozen=True)
class Views:
    """The mistake as training sees it: dropout views of its answer positions, drawn once."""

    queries: Tensor  # (views, P, d)
    wrong: Tensor  # (n,): the positions that get a neuron each
