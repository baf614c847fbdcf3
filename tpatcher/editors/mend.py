"""MEND (Mitchell et al., Fast Model Editing at Scale, ICLR 2022).

The gradient of a weight matrix is a sum over tokens of outer products δ·uᵀ: of what comes back to
the matrix's output and what went into it. A small network per matrix shape turns each pair (u, δ)
into another one, and the sum of their products, times a learned rate, is the edit.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher import ffn
from tpatcher.editors.forced import cross_entropy, force, kl, logits, trainable
from tpatcher.editors.lessons import Lessons
from tpatcher.editors.trained import Trained
from tpatcher.example import Example
from tpatcher.models import Model
from tpatcher.tasks import Forced
from tpatcher.weights import Weights

Factors = dict[str, tuple[Tensor, Tensor]]  # of each matrix: u (T, in), δ (T, out)


@dataclass
class Mend(Trained):
    """The gradient, transformed. Defaults are that paper's; `small` is for the built-in models."""

    name: ClassVar[str] = "mend"
    layers: int = 3  # the last so many layers' feed-forward matrices are edited
    rank: int = 1920
    learning_rate: float = 1e-6
    edit_rate: float = 1e-4  # α, learned per matrix
    rate_learning_rate: float = 1e-4
    edit_weight: float = 0.1  # c_e
    edits: int = 10  # per step
    local: int = 1  # texts per edit that are to stay

    @classmethod
    def small(cls, **fields: Any) -> "Mend":
        """Settings that train within minutes on models of a few million weights."""
        quick: dict[str, Any] = {
            "steps": 600, "learning_rate": 3e-4, "edit_rate": 1e-2, "rate_learning_rate": 1e-2,
            "rank": 64, "pool": 4000, "edits": 4, "local": 4, "edit_weight": 1.0,
        }  # fmt: skip
        return cls(**{**quick, **fields})

    @property
    def clip(self) -> float:
        return 100.0

    def names(self, model: Model) -> list[str]:
        """The edited matrices."""
        found = []
        for layer in range(-min(self.layers, model.depth), 0):
            place = ffn.find(model.net, layer)
            found += [f"{n}.weight" for n in (place.first, place.up, place.second) if n]
        return found

    def build(self, model: Model) -> nn.Module:
        shapes = {}
        for name in self.names(model):
            shapes[name] = widths(model.net, name)
        return Transforms(shapes, self.rank, self.edit_rate)

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        rates = [p for n, p in learner.named_parameters() if n == "rates"]
        rest = [p for n, p in learner.named_parameters() if n != "rates"]
        groups = [{"params": rest}, {"params": rates, "lr": self.rate_learning_rate}]
        return torch.optim.Adam(groups, lr=self.learning_rate)

    def loss(
        self, model: Model, learner: nn.Module, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """c_e·l_e + l_loc, over some edits (that paper, Eq. 4)."""
        terms = []
        for _ in range(self.edits):
            lesson = lessons.draw(rng, self.local)
            found = factors(model, self.names(model), lesson.text, lesson.answer)
            weights = learner(model.net, found)
            texts, answers = [lesson.text, lesson.rephrasing], [lesson.answer] * 2
            asked = force(model, texts, answers)
            local = force(model, lesson.local, lesson.local_said)
            with torch.no_grad():
                before = logits(model, model.net, local)
            edit = cross_entropy(logits(model, model.net, asked, weights), asked)
            stay = kl(before, logits(model, model.net, local, weights))
            terms.append(self.edit_weight * edit + stay)
        return torch.stack(terms).mean()

    def solve(self, model: Model, example: Example) -> Weights:
        learner = self.learned(model)
        found = factors(model, self.names(model), example.text, example.answer)
        with torch.no_grad():
            values = learner(model.net, found)
        return Weights(example=example, editor=self.name, values=values)


def factors(model: Model, names: Sequence[str], text: str, answer: str) -> Factors:
    """u and δ of every token, for each matrix, of the loss of an answer."""
    net, _ = trainable(model, list(names))
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    for name in names:
        module = net.get_submodule(name.removesuffix(".weight"))
        stock = module.inner if isinstance(module, ffn.Wrapped) else module

        def note(_: nn.Module, args: tuple[Any, ...], output: Tensor, name: str = name) -> None:
            seen[name] = args[0], output

        stock.register_forward_hook(note)
    forced: Forced = force(model, [text], [answer])
    loss = cross_entropy(logits(model, net, forced), forced)
    back = torch.autograd.grad(loss, [seen[n][1] for n in names])
    return {
        n: (seen[n][0].detach().flatten(0, -2), delta.flatten(0, -2))
        for n, delta in zip(names, back, strict=True)
    }


def outer(u: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
    """Σ δ·uᵀ in the weight's own layout: Linear has (out, in), Conv1D (in, out)."""
    product = delta.T @ u
    transposed = weight.shape != product.shape or not linear_layout(weight, u)
    return product.T if transposed else product


def linear_layout(weight: Tensor, u: Tensor) -> bool:
    return weight.shape[1] == u.shape[1]


def widths(net: nn.Module, name: str) -> tuple[int, int]:
    """A matrix's inputs and outputs."""
    module = net.get_submodule(name.removesuffix(".weight"))
    stock = module.inner if isinstance(module, ffn.Wrapped) else module
    dims = next(d for kind, d in ffn.DIMS.items() if isinstance(stock, kind))
    return getattr(stock, dims[0]), getattr(stock, dims[1])


class Transforms(nn.Module):
    """One network per matrix shape, and a rate α per matrix."""

    def __init__(self, shapes: Mapping[str, tuple[int, int]], rank: int, rate: float) -> None:
        super().__init__()
        self.shapes = dict(shapes)
        kinds = list(dict.fromkeys(shapes.values()))
        self.kinds = {shape: str(i) for i, shape in enumerate(kinds)}
        self.nets = nn.ModuleDict(
            {
                self.kinds[shape]: Transform(*shape, rank, list(shapes.values()).count(shape))
                for shape in kinds
            }
        )
        self.rates = nn.Parameter(torch.full((len(shapes),), rate))

    def forward(self, net: nn.Module, found: Factors) -> dict[str, Tensor]:
        """The new weights, W − α·Σ δ̃·ũᵀ."""
        known = dict(net.named_parameters())
        used: dict[tuple[int, int], int] = {}
        out = {}
        for i, (name, shape) in enumerate(self.shapes.items()):
            mode = used.get(shape, 0)
            used[shape] = mode + 1
            u, delta = self.nets[self.kinds[shape]](*found[name], mode)
            weight = known[name].detach()
            out[name] = weight - self.rates[i] * outer(u, delta, weight)
        return out


class Transform(nn.Module):
    """Two residual low-rank layers on (u, δ), both normalised; at first the identity."""

    def __init__(self, u: int, delta: int, rank: int, modes: int) -> None:
        super().__init__()
        self.widths = [u, delta]
        width = u + delta
        self.down = nn.ParameterList(
            [nn.Parameter(torch.empty(min(rank, width), width)) for _ in range(2)]
        )
        self.up = nn.ParameterList(
            [nn.Parameter(torch.zeros(width, min(rank, width))) for _ in range(2)]
        )
        for part in self.down:
            nn.init.xavier_uniform_(part)
        self.bias = nn.Parameter(torch.zeros(2, width))
        self.scale = nn.Parameter(torch.ones(2, modes, width))  # of each layer of the model
        self.shift = nn.Parameter(torch.zeros(2, modes, width))
        self.mean: Tensor
        self.square: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("square", torch.zeros(width))  # sum of squared differences
        self.register_buffer("count", torch.zeros(()))

    def forward(self, u: Tensor, delta: Tensor, mode: int) -> tuple[Tensor, Tensor]:
        """ũ and δ̃; tokens that no gradient comes back to are left out."""
        pair = torch.cat([u, delta], dim=-1)[(delta != 0).any(-1)]
        if self.training:
            self.note(pair)
        z = pair
        if self.count > 1:
            z = (pair - self.mean) / ((self.square / (self.count - 1)).sqrt() + 1e-7)
        for i in range(2):
            low = z @ self.down[i].T @ self.up[i].T + self.bias[i]
            # clamp and not relu, whose gradient at 0, where this begins, is 0
            z = z + (low * self.scale[i, mode] + self.shift[i, mode]).clamp(min=0)
        return z.split(self.widths, dim=-1)  # type: ignore[return-value]

    @torch.no_grad()
    def note(self, pairs: Tensor) -> None:
        """Bring mean and variance up to date (Chan et al.'s rule for two sets)."""
        n = len(pairs)
        mean = pairs.mean(0)
        total = self.count + n
        apart = mean - self.mean
        squares = (pairs - mean).square().sum(0)
        self.square = self.square + squares + apart.square() * self.count * n / total
        self.mean = self.mean + apart * n / total
        self.count = total
