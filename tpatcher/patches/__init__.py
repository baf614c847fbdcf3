"""Do I know what an edit leaves behind? Patches of every kind, and the bytes that keep them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from tpatcher import files
from tpatcher.errors import Damaged
from tpatcher.example import Example
from tpatcher.patches.base import NAMED, Patch
from tpatcher.patches.cached_answer import CachedAnswer
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.codebook import Codebook
from tpatcher.patches.nearest_answer import NearestAnswer
from tpatcher.patches.neurons import Neurons
from tpatcher.patches.weights import Weights

# A net is given its patches kind by kind, in this order.
KINDS: dict[str, type[Patch]] = {
    kind.kind: kind for kind in (Neurons, Codebook, Weights, CachedAnswer, NearestAnswer)
}

# What reading nonsense raises: RecursionError is of JSON that is nested too deeply.
MALFORMED = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, RecursionError,
)  # fmt: skip

# What version 0.1.0 called these fields.
FORMER = {"certificate": "report", "depends_on": "leans_on"}


def from_meta(meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Patch:
    """A patch of whichever kind the metadata names."""
    try:
        if not isinstance(meta, Mapping):
            raise TypeError(f"it is {meta!r:.60}")
        meta = dict(meta)
        kind = KINDS[meta.pop("kind")]
        example = meta.pop("example")
        for now, before in FORMER.items():
            if before in meta:
                meta[now] = meta.pop(before)
        certificate = Certificate.from_json(meta.pop("certificate"))
        example = Example.from_json(example) if example else None
        named: dict[str, Any] = {f.name: {} for f in fields(kind) if f.metadata.get(NAMED)}
        for name, tensor in tensors.items():
            owner, _, key = name.partition("/")
            if key:
                named[owner][key] = tensor
            else:
                named[name] = tensor
        return kind(**{**meta, **named, "example": example, "certificate": certificate})
    except MALFORMED as error:
        raise Damaged(f"the metadata of a patch is not what it should be: {error!r}") from error


def from_bytes(blob: bytes) -> Patch:
    """Read what `to_bytes` wrote; anything else is `Damaged`, saying what is wrong."""
    try:
        tensors = load_tensors(blob)
        meta = files.safetensors_metadata(blob)
    except (SafetensorError, *MALFORMED) as error:
        raise Damaged(f"these {len(blob)} bytes are not a patch: {error}") from error
    return from_meta(meta, tensors)
