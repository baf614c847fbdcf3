"""A codebook in one layer: near one of its keys, the layer's output is replaced by a value.

GRACE (Hartvigsen et al., NeurIPS 2023) leaves one behind; how it is filled is in editors/grace.py.
"""

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

    def forward(self, a: Tensor) -> Tensor:
        out: Tensor = self.inner(a)
        # behind the stock inputs come the activations of added neurons: no part of a key
        nearest, inside = match(a[..., : self.keys.shape[1]], self.keys, self.radii)
        return torch.where(inside[..., None], self.values[nearest].to(out.dtype), out)


def match(queries: Tensor, keys: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """For each query (…, h), the index of the nearest key, and if that key's radius reaches it."""
    distance, nearest = distances(queries, keys).min(-1)
    return nearest, distance <= radii[nearest]


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Euclidean distances (…, n) of queries (…, h) to keys (n, h).

    Not by a matrix product, whose rounding would blur a distance of 0.
    """
    flat = queries.reshape(-1, queries.shape[-1]).to(keys.dtype)
    found = torch.cdist(flat, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return found.view(*queries.shape[:-1], len(keys))


@dataclass(frozen=True, kw_only=True, eq=False)
class Codebook(Patch):
    """The whole codebook of a layer after an edit; of several patches the newest one acts."""

    kind: ClassVar[str] = "codebook"
    removable_alone: ClassVar[bool] = False
    layer: int  # counted from the end
    keys: Tensor  # (n, h): inputs of the second matrix
    radii: Tensor  # (n,)
    values: Tensor  # (n, d): outputs of the second matrix
    tokens: Tensor  # (n,): the label or token that each entry was made for

    def __post_init__(self) -> None:
        n = len(self.keys)
        shapes = {"keys": (n, self.keys.shape[-1]), "radii": (n,), "tokens": (n,)}
        for name, shape in {**shapes, "values": (n, self.values.shape[-1])}.items():
            if tuple(getattr(self, name).shape) != shape:
                found = tuple(getattr(self, name).shape)
                raise ValueError(f"{name} has shape {found}; with {n} keys, not {shape}")
        super().__post_init__()

    def check(self, net: nn.Module) -> None:
        name = ffn.find(net, self.layer).second
        shape = tuple(ffn.unwrap(net.get_submodule(name)).weight.shape)  # type: ignore[arg-type, union-attr]
        if sorted(shape) != sorted((self.keys.shape[1], self.values.shape[1])):
            raise WrongBase(
                f"patch {self.id} maps {self.keys.shape[1]} to {self.values.shape[1]}, but {name} "
                f"has the shape {shape}"
            )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        for layer in {p.layer for p in (*before, *after) if isinstance(p, Codebook)}:
            book = effective(after, layer)
            set_codebook(net, layer, (book.keys, book.radii, book.values) if book else None)


def effective(patches: Sequence[Patch], layer: int) -> Codebook | None:
    """The codebook that acts in a layer: the newest one, which holds all entries before it."""
    books = [p for p in patches if isinstance(p, Codebook) and p.layer == layer]
    return books[-1] if books else None


def set_codebook(net: nn.Module, layer: int, book: tuple[Tensor, Tensor, Tensor] | None) -> None:
    """Give a layer these keys, radii and values; None takes its codebook off."""
    name = ffn.find(net, layer).second
    module = net.get_submodule(name)
    if isinstance(module, CodebookLinear):
        module = module.inner
    if book is not None:
        device = module.weight.device
        module = CodebookLinear(module, *(t.to(device) for t in book)).train(net.training)  # type: ignore[arg-type]
    ffn.set_module(net, name, module)
