"""MEND (Mitchell et al., Fast Model Editing at Scale, ICLR 2022).

A small network per matrix shape turns each pair of factors (u, δ) of the gradient into another
pair (ũ, δ̃); the sum of their outer products, times a learned rate α, is subtracted from the
weights. It is trained with c_e·l_e + l_loc: the loss of the edit at a rephrasing, and KL to the
initial model elsewhere.

As in the paper: the feed-forward matrices of the last three layers, or of the last two of an
encoder and of a decoder; networks shared by matrices of a shape; rates, rank, c_e, batches of 10;
training ends when c_e·l_e + l_loc on 500 held-out edits has not become lower for 20,000 edits, and
the best network is kept. Not as there: its local texts for question answering are of another data
set (Natural Questions), ours of the same; what an edit teaches where the model is right, see
training_edits.py. `SMALL` is our own, for small models: higher rates, a lower rank, c_e = 1.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher.editors.trained.hypernetwork import Factors, HyperEditor, Outcome, sizes
from tpatcher.editors.trained.training_edits import TrainingEdit, TrainingEdits
from tpatcher.models.model import Model
from tpatcher.nets import ffn


@dataclass
class Mend(HyperEditor):
    """The gradient, transformed."""

    name: ClassVar[str] = "mend"
    clip: ClassVar[float | None] = 100.0
    SMALL: ClassVar[dict[str, Any]] = {
        "steps": 600,
        "seconds": 1800.0,
        "check_every": 50,
        "validation": 48,
        "patience": 200,
        "learning_rate": 1e-3,
        "rank": 128,
        "edits": 8,
        "local": 2,
        "edit_weight": 1.0,
    }

    steps: int = 50_000  # of 10 edits: their 500,000
    patience: int | None = 2000
    edits: int = 10
    layers: int | None = None  # so many of the last of each stack; None: as in the paper
    rank: int = 1920
    learning_rate: float = 1e-6
    edit_rate: float = 1e-4  # α at first; it is learned per matrix
    rate_learning_rate: float = 1e-4
    edit_weight: float = 0.1  # c_e

    def names(self, model: Model) -> list[str]:
        stacks = ffn.stacks(model.net)
        last = self.layers or (3 if len(stacks) == 1 else 2)
        found = []
        for stack in stacks:
            depth = len(model.net.get_submodule(stack))  # type: ignore[arg-type]
            for i in range(max(0, depth - last), depth):
                layer = ffn.find_named(model.net, f"{stack}.{i}")
                matrices = (layer.first, layer.up, layer.second)
                found += [f"{name}.weight" for name in matrices if name]
        return found

    def build(self, model: Model) -> nn.Module:
        return Transforms(sizes(model.net, self.names(model)), self.rank, self.edit_rate)

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        rest = [p for n, p in learner.named_parameters() if n != "rates"]
        rates = {"params": [learner.rates], "lr": self.rate_learning_rate}
        groups: list[dict[str, Any]] = [{"params": rest}, rates]
        return torch.optim.Adam(groups, lr=self.learning_rate)

    def change(
        self, model: Model, learner: Any, factors: Factors, edits: Sequence[TrainingEdit]
    ) -> Factors:
        return learner(factors)  # type: ignore[no-any-return]

    def asked(self, edit: TrainingEdit) -> list[str]:
        return [edit.rephrasing]

    def objective(self, learner: Any, outcome: Outcome) -> Tensor:
        """c_e·l_e + l_loc."""
        return self.edit_weight * outcome.edit_loss + outcome.local_kl

    def check(self, model: Model, learner: Any, edits: TrainingEdits) -> float:
        outcomes = self.outcomes(model, learner, edits)
        return fmean(float(self.objective(learner, outcome)) for outcome in outcomes)


class Transforms(nn.Module):
    """The learner: one network per matrix shape, and a rate α per matrix."""

    def __init__(self, sizes: Mapping[str, tuple[int, int]], rank: int, rate: float) -> None:
        super().__init__()
        self.sizes = dict(sizes)
        modes = Counter(sizes.values())  # matrices of one shape share a network
        self.nets = nn.ModuleDict(
            {f"{u}-{d}": Transform(u, d, rank, n) for (u, d), n in modes.items()}
        )
        self.rates = nn.Parameter(torch.full((len(sizes),), rate))

    def forward(self, factors: Factors) -> Factors:
        """ũ and −α·δ̃ of every matrix."""
        used: Counter[str] = Counter()
        out = {}
        for rate, (name, (ins, outs)) in zip(self.rates, self.sizes.items(), strict=True):
            shape = f"{ins}-{outs}"
            u, delta = self.nets[shape](*factors[name], used[shape])
            used[shape] += 1
            out[name] = u, -rate * delta
        return out


class Transform(nn.Module):
    """Two residual low-rank layers on the normalised pair (u, δ); at first the identity.

    Layer i is z + σ(s_i ⊙ (U_i·V_i·z + b_i) + o_i), where the scale s and the shift o belong to one
    matrix (a mode) and the rest is shared by all matrices of a shape.
    """

    def __init__(self, u: int, delta: int, rank: int, modes: int) -> None:
        super().__init__()
        self.widths, width = [u, delta], u + delta
        rank = min(rank, width)
        self.down = nn.Parameter(torch.randn(2, rank, width) * (2 / (rank + width)) ** 0.5)
        self.up = nn.Parameter(torch.zeros(2, width, rank))
        self.bias = nn.Parameter(torch.zeros(2, width))
        self.scale = nn.Parameter(torch.ones(2, modes, width))
        self.shift = nn.Parameter(torch.zeros(2, modes, width))
        self.mean: Tensor
        self.square: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("square", torch.zeros(width))  # sum of squared differences
        self.register_buffer("count", torch.zeros(()))

    def forward(self, u: Tensor, delta: Tensor, mode: int) -> tuple[Tensor, Tensor]:
        """ũ and δ̃ of tokens (…, ·); 0 for tokens whose gradient is 0."""
        touched = (delta != 0).any(-1)
        pairs = torch.cat([u, delta], dim=-1)[touched]
        if self.training:
            self.update_statistics(pairs)
        z = pairs
        if self.count > 1:
            z = (pairs - self.mean) / ((self.square / (self.count - 1)).sqrt() + 1e-7)
        for i in range(2):
            low = z @ self.down[i].T @ self.up[i].T + self.bias[i]
            # clamp and not relu: all begins at 0, where the gradient of relu is 0
            z = z + (low * self.scale[i, mode] + self.shift[i, mode]).clamp(min=0)
        out = z.new_zeros(*touched.shape, z.shape[-1])
        out = out.index_put((touched,), z)
        return out.split(self.widths, dim=-1)  # type: ignore[return-value]

    @torch.no_grad()
    def update_statistics(self, pairs: Tensor) -> None:
        """Bring the running mean and variance up to date (Chan et al.'s rule for two sets)."""
        n, mean = len(pairs), pairs.mean(0)
        total, difference = self.count + n, mean - self.mean
        squares = (pairs - mean).square().sum(0)
        self.square = self.square + squares + difference.square() * self.count * n / total
        self.mean = self.mean + difference * n / total
        self.count = total
