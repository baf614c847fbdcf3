"""A codebook in one layer: keys with radii, and what the layer gives out inside them (GRACE)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tpatcher.errors import WrongBase
from tpatcher.nets import ffn
from tpatcher.patches.base import Patch


class CodebookLinear(ffn.Wrapped):
    """The second matrix of a feed-forward layer, with its output replaced near a key."""

    def __init__(self, inner: nn.Module, keys: Tensor, radii: Tensor, values: Tensor) -> None:
        super().__init__(inner)
        self.keys: Tensor
        self.radii: Tensor
        self.values: Tensor
        for name, tensor in (("keys", keys), ("radii", radii), ("values", values)):
            self.register_buffer(name, tensor, persistent=False)

    @property
    def inner(self) -> nn.Module:
        """The stock matrix, which may lie below the wrapper of neurons."""
        below = self.hidden[0]
        return below.inner if isinstance(below, ffn.Wrapped) else below

    def forward(self, a: Tensor) -> Tensor:
        out: Tensor = self.hidden[0](a)
        nearest, inside = match(a[..., : self.keys.shape[1]], self.keys, self.radii)
        return torch.where(inside[..., None], self.values[nearest].to(out.dtype), out)


def match(queries: Tensor, keys: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """For each query (…, h) the nearest key, and whether it lies within that key's radius."""
    distance, nearest = distances(queries, keys).min(-1)
    return nearest, distance <= radii[nearest]


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Euclidean, (…, n). Not by a matrix product, whose rounding would blur a distance of 0."""
    flat = queries.reshape(-1, queries.shape[-1]).to(keys.dtype)
    found = torch.cdist(flat, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return found.view(*queries.shape[:-1], len(keys))


@dataclass(frozen=True, kw_only=True, eq=False)
class Codebook(Patch):
    """The whole codebook after an edit: the newest one worn is the one that acts."""

    kind: ClassVar[str] = "codebook"
    removable_alone: ClassVar[bool] = False
    layer: int  # counted from the end
    keys: Tensor  # (n, h): inputs of the second matrix
    radii: Tensor  # (n,)
    values: Tensor  # (n, d): outputs of the second matrix
    tokens: Tensor  # (n,): the label or token that each entry was made for

    def check(self, net: nn.Module) -> None:
        place = ffn.find(net, self.layer)
        weight = stock(net, place.second).weight
        if sorted(weight.shape) != sorted((self.keys.shape[1], self.values.shape[1])):  # type: ignore[arg-type]
            raise WrongBase(
                f"patch {self.id} maps {self.keys.shape[1]} to {self.values.shape[1]}, but "
                f"{place.second} has the shape {tuple(weight.shape)}"  # type: ignore[arg-type]
            )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        for layer in {p.layer for p in (*before, *after) if isinstance(p, Codebook)}:
            worn = newest(after, layer)
            write(net, layer, (worn.keys, worn.radii, worn.values) if worn else None)


def newest(patches: Sequence[Patch], layer: int) -> Codebook | None:
    """The codebook that acts in a layer."""
    books = [p for p in patches if isinstance(p, Codebook) and p.layer == layer]
    return books[-1] if books else None


def write(net: nn.Module, layer: int, book: tuple[Tensor, Tensor, Tensor] | None) -> None:
    """Let a layer use these keys, radii and values; None takes the codebook off."""
    name = ffn.find(net, layer).second
    owner, _, child = name.rpartition(".")
    module = net.get_submodule(name)
    if isinstance(module, CodebookLinear):
        module = module.hidden[0]
    if book is not None:
        device = module.weight.device
        module = CodebookLinear(module, *(t.to(device) for t in book)).train(net.training)  # type: ignore[arg-type]
    setattr(net.get_submodule(owner), child, module)


def stock(net: nn.Module, name: str) -> nn.Module:
    """A module without whatever it wears."""
    module = net.get_submodule(name)
    return module.inner if isinstance(module, ffn.Wrapped) else module
