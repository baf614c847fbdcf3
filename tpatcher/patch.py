"""What an edit leaves behind: neurons, and the bytes that keep them (safetensors, no pickle)."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from tpatcher import ffn
from tpatcher.errors import Damaged, WrongBase
from tpatcher.example import Example

NAMED = "named"  # marks a field that maps names to tensors; stored as "field/name"


def own(tensor: Tensor) -> Tensor:
    """A copy that nobody else changes."""
    return tensor.detach().cpu().clone().contiguous()


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """One edit, made for one example. A subclass says what it changes in the model."""

    kind: ClassVar[str]
    alone: ClassVar[bool] = True  # whether it can be taken off from below newer ones
    example: Example | None  # None in a pack that was saved without its texts
    editor: str
    report: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""

    def __post_init__(self) -> None:
        for f in fields(self):  # tensors of its own, which nobody else changes
            held = getattr(self, f.name)
            if isinstance(held, Tensor):
                object.__setattr__(self, f.name, own(held))
            elif f.metadata.get(NAMED):
                object.__setattr__(self, f.name, {k: own(t) for k, t in held.items()})
        if not self.id:
            object.__setattr__(self, "id", self.checksum[:12])

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What is stored as tensors: every field that is one, or that names several."""
        found: dict[str, Tensor] = {}
        for f in fields(self):
            held = getattr(self, f.name)
            if isinstance(held, Tensor):
                found[f.name] = held
            elif f.metadata.get(NAMED):
                found |= {f"{f.name}/{key}": tensor for key, tensor in held.items()}
        return found

    @property
    def meta(self) -> dict[str, Any]:
        """What is stored as JSON: every other field."""
        stored = {name.split("/")[0] for name in self.tensors}
        stored |= {f.name for f in fields(self) if f.metadata.get(NAMED)}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in stored}
        example = self.example.to_json() if self.example else None
        return {**rest, "kind": self.kind, "example": example, "report": dict(self.report)}

    @cached_property
    def checksum(self) -> str:
        """A hash of what the patch does and for which example: the same edit, the same hash."""
        digest = hashlib.sha256(self.kind.encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        digest.update(json.dumps(self.example.to_json() if self.example else None).encode())
        return digest.hexdigest()

    def without_text(self) -> Self:
        """The same patch, without the words of whoever reported the mistake."""
        return replace(self, example=None)

    def to_bytes(self) -> bytes:
        """One safetensors blob, metadata and all."""
        return save_tensors(self.tensors, metadata={"tpatcher": json.dumps(self.meta)})

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Patch":
        """A patch of whichever kind the metadata names."""
        try:
            meta = dict(meta)
            kind = KINDS[meta.pop("kind")]
            example = meta.pop("example")
            example = Example.from_json(example) if example else None
            named: dict[str, Any] = {f.name: {} for f in fields(kind) if f.metadata.get(NAMED)}
            for name, tensor in tensors.items():
                owner, _, key = name.partition("/")
                if key:
                    named[owner][key] = tensor
                else:
                    named[name] = tensor
            return kind(**{**meta, **named, "example": example})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"the metadata of a patch is not what it should be: {error!r}") from error

    @property
    def needs(self) -> tuple[Any, ...]:
        """What `check` depends on: of patches that need the same, one check is enough."""
        return (self.kind, self.id)

    def check(self, net: nn.Module) -> None:
        """Refuse a model that this patch cannot work on, before anything is changed."""

    @classmethod
    def dress(cls, net: nn.Module, before: Sequence["Patch"], after: Sequence["Patch"]) -> None:
        """Bring the net from wearing `before` to wearing `after`, this kind's part of it."""
        raise NotImplementedError


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
    leans_on: tuple[str, ...] = ()  # older patches that fire on these queries

    def __post_init__(self) -> None:
        object.__setattr__(self, "leans_on", tuple(self.leans_on))
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
    def needs(self) -> tuple[Any, ...]:
        return (self.kind, self.layer, self.keys.shape[1])

    def check(self, net: nn.Module) -> None:
        width = ffn.find(net, self.layer).width
        if self.keys.shape[1] != width:
            raise WrongBase(
                f"patch {self.id} has keys of width {self.keys.shape[1]}, but layer {self.layer} "
                f"of {type(net).__name__} has queries of width {width}"
            )

    @classmethod
    def dress(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
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


# weights.py, codebook.py and recall.py add their kinds; a net is dressed in this order.
KINDS: dict[str, type[Patch]] = {Neurons.kind: Neurons}


def from_bytes(blob: bytes) -> Patch:
    """Read what `to_bytes` wrote; anything else is `Damaged`, saying what is wrong."""
    try:
        tensors = load_tensors(blob)
        size = int.from_bytes(blob[:8], "little")
        meta = json.loads(json.loads(blob[8 : 8 + size])["__metadata__"]["tpatcher"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"these {len(blob)} bytes are not a patch: {error}") from error
    return Patch.from_meta(meta, tensors)
