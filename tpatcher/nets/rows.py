"""The neurons that patches add to one feed-forward layer, and the one formula of the paper."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Rows:
    """n neurons: a row of `keys` and of `values` and a number of `bias` each (paper, Eq. 5-7)."""

    keys: Tensor  # (n, d)
    bias: Tensor  # (n,)
    values: Tensor  # (n, d)

    @classmethod
    def empty(cls, width: int) -> "Rows":
        """No neurons, of a layer whose queries have this width."""
        return cls(torch.empty(0, width), torch.empty(0), torch.empty(0, width))

    def __len__(self) -> int:
        return len(self.bias)

    def __add__(self, other: "Rows") -> "Rows":
        """These neurons and, after them, the others."""
        return Rows(
            torch.cat([self.keys, other.keys]),
            torch.cat([self.bias, other.bias]),
            torch.cat([self.values, other.values]),
        )

    def to(self, device: torch.device | str) -> "Rows":
        """The same neurons on a device."""
        return Rows(self.keys.to(device), self.bias.to(device), self.values.to(device))

    def response(self, queries: Tensor) -> Tensor:
        """q·K + b, (…, n) for queries (…, d): a neuron fires where this is above 0."""
        return queries @ self.keys.T + self.bias

    def delta(self, act: Activation, queries: Tensor) -> Tensor:
        """Act(q·K + b)·V, (…, d): what the neurons add to the layer's output (Eq. 8)."""
        return act(self.response(queries)) @ self.values
