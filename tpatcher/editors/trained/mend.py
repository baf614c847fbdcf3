"""MEND (Mitchell et al., Fast Model Editing at Scale, ICLR 2022).

A small network per matrix shape turns each pair of factors (u, δ) of the gradient into another
one; the sum of their outer products, times a learned rate, is taken off the weights. Trained with
c_e·l_e + l_loc: the edit's loss at a rephrasing, and KL to the initial model elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher.editors.trained.hypernetwork import Factors, HyperEditor, sizes
from tpatcher.editors.trained.training_edits import Lesson
from tpatcher.models.model import Model
from tpatcher.nets import ffn


@dataclass
class Mend(HyperEditor):
    """The gradient, transformed. Defaults are that paper's; `small` is for the built-in models."""

    name: ClassVar[str] = "mend"
    steps: int = 100_000
    edits: int = 10
    layers: int = 3  # the last so many layers' feed-forward matrices are edited
    rank: int = 1920
    learning_rate: float = 1e-6
    edit_rate: float = 1e-4  # α, learned per matrix
    rate_learning_rate: float = 1e-4
    edit_weight: float = 0.1  # c_e

    @classmethod
    def small(cls, **fields: Any) -> "Mend":
        """Settings that train within minutes on models of a few million weights."""
        quick: dict[str, Any] = {
            "steps": 1000, "learning_rate": 1e-3, "rank": 128, "pool": 4000, "edits": 8, "local": 2,
            "edit_weight": 1.0,
        }  # fmt: skip
        return cls(**{**quick, **fields})

    @property
    def clip(self) -> float:
        return 100.0

    def names(self, model: Model) -> list[str]:
        found = []
        for layer in range(-min(self.layers, model.n_layers), 0):
            place = ffn.find(model.net, layer)
            found += [f"{n}.weight" for n in (place.first, place.up, place.second) if n]
        return found

    def build(self, model: Model) -> nn.Module:
        return Transforms(sizes(model.net, self.names(model)), self.rank, self.edit_rate)

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        assert isinstance(learner, Transforms)
        rest = [p for n, p in learner.named_parameters() if n != "rates"]
        groups: list[dict[str, Any]] = [{"params": rest}]
        groups.append({"params": [learner.rates], "lr": self.rate_learning_rate})
        return torch.optim.Adam(groups, lr=self.learning_rate)

    def change(
        self, model: Model, learner: nn.Module, found: Factors, lessons: Sequence[Lesson]
    ) -> Factors:
        return learner(found)  # type: ignore[no-any-return]

    def objective(self, learner: nn.Module, edit: Tensor, apart: Tensor, right: Tensor) -> Tensor:
        return self.edit_weight * edit + apart


class Transforms(nn.Module):
    """One network per matrix shape, and a rate α per matrix."""

    def __init__(self, sizes: Mapping[str, tuple[int, int]], rank: int, rate: float) -> None:
        super().__init__()
        self.sizes = dict(sizes)
        modes = Counter(sizes.values())
        self.nets = nn.ModuleDict(
            {f"{u}-{d}": Transform(u, d, rank, modes[u, d]) for u, d in modes}
        )
        self.rates = nn.Parameter(torch.full((len(sizes),), rate))

    def forward(self, found: Factors) -> Factors:
        """ũ and −α·δ̃ of every matrix."""
        used: Counter[str] = Counter()
        out = {}
        for rate, (name, (ins, outs)) in zip(self.rates, self.sizes.items(), strict=True):
            kind = f"{ins}-{outs}"
            u, delta = self.nets[kind](*found[name], used[kind])
            used[kind] += 1
            out[name] = u, -rate * delta
        return out


class Transform(nn.Module):
    """Two residual low-rank layers on (u, δ), both normalised; at first the identity."""

    def __init__(self, u: int, delta: int, rank: int, modes: int) -> None:
        super().__init__()
        self.widths, width = [u, delta], u + delta
        rank = min(rank, width)
        self.down = nn.Parameter(torch.randn(2, rank, width) * (2 / (rank + width)) ** 0.5)
        self.up = nn.Parameter(torch.zeros(2, width, rank))
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
        """ũ and δ̃ of tokens (…, ·); 0 for those that no gradient comes back to."""
        touched = (delta != 0).any(-1)
        pairs = torch.cat([u, delta], dim=-1)[touched]
        if self.training:
            self.note(pairs)
        z = pairs
        if self.count > 1:
            z = (pairs - self.mean) / ((self.square / (self.count - 1)).sqrt() + 1e-7)
        for i in range(2):
            low = z @ self.down[i].T @ self.up[i].T + self.bias[i]
            # clamp and not relu, whose gradient at 0, where this begins, is 0
            z = z + (low * self.scale[i, mode] + self.shift[i, mode]).clamp(min=0)
        out = z.new_zeros(*touched.shape, z.shape[-1])
        out = out.index_put((touched,), z)
        return out.split(self.widths, dim=-1)  # type: ignore[return-value]

    @torch.no_grad()
    def note(self, pairs: Tensor) -> None:
        """Bring mean and variance up to date (Chan et al.'s rule for two sets)."""
        n, mean = len(pairs), pairs.mean(0)
        total, apart = self.count + n, mean - self.mean
        squares = (pairs - mean).square().sum(0)
        self.square = self.square + squares + apart.square() * self.count * n / total
        self.mean = self.mean + apart * n / total
        self.count = total
