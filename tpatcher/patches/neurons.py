"""Neurons: the patch that T-Patcher makes (paper, Eq. 5-8)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher.errors import WrongBase
from tpatcher.nets import ffn
from tpatcher.patches.base import Patch


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurons(Patch):
    """n neurons in one feed-forward layer (paper, Eq. 5-8 and the appendix for n > 1).

    The queries are those of every answer position of the example, whether patched or not:
    they are the memory that later edits must leave alone.
    """

    kind: ClassVar[str] = "neurons"
    layer: int  # counted from the end: -1 is the last
    keys: Tensor  # (n, d)
    bias: Tensor  # (n,)
    values: Tensor  # (n, d)
    queries: Tensor  # (m, d)
    states: Tensor  # (m, d or 2d): what enters the tail there, without any patch; maybe empty
    tokens: Tensor  # (m,): the right label or token there
    depends_on: tuple[str, ...] = ()  # older patches that fire on these queries

    def __post_init__(self) -> None:
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        n, d = self.keys.shape
        shapes = {"bias": (n,), "values": (n, d), "queries": (len(self.tokens), d)}
        for name, shape in shapes.items():
            if tuple(getattr(self, name).shape) != shape:
                found = tuple(getattr(self, name).shape)
                raise ValueError(f"{name} has shape {found}; with keys ({n}, {d}), not {shape}")
        for name, tensor in self.tensors.items():
            if not torch.isfinite(tensor).all():
                raise ValueError(f"{name} holds NaN or infinity")
        super().__post_init__()

    @property
    def check_key(self) -> tuple[Any, ...]:
        return (self.kind, self.layer, self.keys.shape[1])

    def check(self, net: nn.Module) -> None:
        width = ffn.find(net, self.layer).width
        if self.keys.shape[1] != width:
            raise WrongBase(
                f"patch {self.id} has keys of width {self.keys.shape[1]}, but layer {self.layer} "
                f"of {type(net).__name__} has queries of width {width}"
            )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        for layer in {p.layer for p in (*before, *after) if isinstance(p, Neurons)}:
            keys, bias, values = rows(after, layer)
            place = ffn.find(net, layer)
            device = net.get_submodule(place.first).weight.device  # type: ignore[union-attr]
            place.widen(net, keys.to(device), bias.to(device), values.to(device))  # type: ignore[arg-type]


def rows(patches: Iterable[Patch], layer: int = -1) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, bias and values of all neurons that these patches have in one layer."""
    found = [p for p in patches if isinstance(p, Neurons) and p.layer == layer]
    if not found:
        return torch.empty(0, 0), torch.empty(0), torch.empty(0, 0)
    parts = zip(*((p.keys, p.bias, p.values) for p in found), strict=True)
    keys, bias, values = (torch.cat(part) for part in parts)
    return keys, bias, values
