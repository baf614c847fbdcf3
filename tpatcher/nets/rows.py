"""The neurons that patches add to one feed-forward layer, and the one formula of the paper."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Rows:
    """n neurons: a row of `keys` and of `values` and a number of `bias` each (paper, Eq. 5-7).

    A key of width w is d wide if it reads the query of its position, and wider if it reads the
    text's state beside it.
    """

    keys: Tensor  # (n, w)
    bias: Tensor  # (n,)
    values: Tensor  # (n, d)

    @classmethod
    def empty(cls, width: int) -> "Rows":
        """No neurons, of a layer whose queries have this width."""
        return cls(torch.empty(0, width), torch.empty(0), torch.empty(0, width))

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def width(self) -> int:
        """How much of a query, and of the text's state after it, the keys read."""
        return self.keys.shape[1]

    def __add__(self, other: "Rows") -> "Rows":
        """These neurons and, after them, the others. Narrower keys ignore what wider ones read."""
        width = max(self.width, other.width)
        return Rows(
            torch.cat([pad(rows.keys, (0, width - rows.width)) for rows in (self, other)]),
            torch.cat([self.bias, other.bias]),
            torch.cat([self.values, other.values]),
        )

    def to(self, device: torch.device | str) -> "Rows":
        """The same neurons on a device."""
        return Rows(self.keys.to(device), self.bias.to(device), self.values.to(device))

    def response(self, queries: Tensor) -> Tensor:
        """q·K + b, (…, n) for queries (…, w or more): a neuron fires where this is above 0."""
        return queries[..., : self.width] @ self.keys.T + self.bias

    def delta(self, act: Activation, queries: Tensor) -> Tensor:
        """Act(q·K + b)·V, (…, d): what the neurons add to the layer's output (Eq. 8)."""
        return act(self.response(queries)) @ self.values
