"""What every patch is: one edit, and the bytes that keep it (safetensors, no pickle)."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from tpatcher.example import Example
from tpatcher.patches.certificate import Certificate

NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COUNTS = (torch.int64, torch.int32)
NAMED = "named"  # marks a field that maps names to tensors; stored as "field/name"


def _frozen_copy(tensor: Tensor) -> Tensor:
    """A copy on the CPU that shares its storage with nothing."""
    return tensor.detach().cpu().clone().contiguous()


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch(ABC):
    """One edit, made for one example. A subclass says what it changes in the model."""

    kind: ClassVar[str]
    removable_alone: ClassVar[bool] = True  # it can be taken off from below newer ones
    answers_itself: ClassVar[bool] = False  # it gives answers in the place of the net
    example: Example | None  # None in a pack that was saved without its texts
    editor: str
    certificate: Certificate = field(default_factory=Certificate)
    id: str = ""

    def __post_init__(self) -> None:
        for f in fields(self):  # tensors of its own, which nobody else changes
            held = getattr(self, f.name)
            if isinstance(held, Tensor):
                object.__setattr__(self, f.name, _frozen_copy(held))
            elif f.metadata.get(NAMED):
                object.__setattr__(self, f.name, {k: _frozen_copy(t) for k, t in held.items()})
        self._refuse_nonsense()
        if not self.id:
            object.__setattr__(self, "id", self.checksum[:12])

    def _refuse_nonsense(self) -> None:
        """Raise ValueError for numbers that no net can work with, wherever they come from."""
        for f in fields(self):
            held = getattr(self, f.name)
            if f.type in (int, str) and type(held) is not f.type:
                raise ValueError(f"{f.name} is {held!r:.60} and not of {f.type}")
        for name, tensor in self.tensors.items():
            if tensor.dtype not in (COUNTS if name == "tokens" else NUMBERS):
                raise ValueError(f"{name} holds {tensor.dtype}, which a patch cannot have there")
            if not torch.isfinite(tensor).all():
                raise ValueError(f"{name} holds NaN or infinity")

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
        rest |= {"kind": self.kind, "certificate": self.certificate.to_json()}
        return {**rest, "example": self.example.to_json() if self.example else None}

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

    @property
    def check_key(self) -> tuple[Any, ...]:
        """What `check` depends on: patches with the same key need only one check."""
        return (self.kind, self.id)

    def check(self, net: nn.Module) -> None:  # noqa: B027 (not every kind can tell)
        """Refuse a model that this patch cannot work on, before anything is changed."""

    @classmethod
    @abstractmethod
    def apply(cls, net: nn.Module, before: Sequence["Patch"], after: Sequence["Patch"]) -> None:
        """Change the net from `before` to `after`: this kind's part of both."""

    @classmethod
    def answers(
        cls, net: Any, task: Any, patches: Sequence["Patch"], texts: Sequence[str]
    ) -> dict[int, str]:
        """What the patches of this kind answer themselves, by the text's index."""
        return {}
