"""Neurons: the patch that T-Patcher makes (paper, Eq. 5-8)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tpatcher.errors import WrongBase
from tpatcher.nets import ffn, reading
from tpatcher.nets.rows import Rows
from tpatcher.patches.base import Patch


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurons(Patch):
    """n neurons in one feed-forward layer (paper, Eq. 5-8 and the appendix for n > 1).

    The queries are those of every answer position of the example, whether patched or not:
    they are the memory that later edits must leave alone.
    """

    kind: ClassVar[str] = "neurons"
    layer: int  # counted from the end: -1 is the last
    keys: Tensor  # (n, w): w is d, or more if they read the text's state beside a query
    bias: Tensor  # (n,)
    values: Tensor  # (n, d)
    queries: Tensor  # (m, w)
    states: Tensor  # (m, d or 2d): what enters the tail there, without any patch; maybe empty
    tokens: Tensor  # (m,): the right label or token there
    depends_on: tuple[str, ...] = ()  # older patches that fire on these queries
    reading: int = reading.VERSION  # of what the text's state is, where that is read

    def __post_init__(self) -> None:
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        (n, w), d = self.keys.shape, self.values.shape[-1]
        shapes = {"bias": (n,), "values": (n, min(d, w)), "queries": (len(self.tokens), w)}
        for name, shape in shapes.items():
            if tuple(getattr(self, name).shape) != shape:
                found = tuple(getattr(self, name).shape)
                raise ValueError(f"{name} has shape {found}; with keys ({n}, {w}), not {shape}")
        if self.states.numel() and len(self.states) != len(self.tokens):
            raise ValueError(f"states has {len(self.states)} rows; with {len(self.tokens)} tokens")
        super().__post_init__()

    @property
    def check_key(self) -> tuple[Any, ...]:
        return (self.kind, self.layer, self.rows.width, self.values.shape[1], self.reading)

    def check(self, net: nn.Module) -> None:
        if self.reads_text and self.reading != reading.VERSION:
            raise WrongBase(
                f"patch {self.id} was made by a tpatcher that read texts otherwise "
                f"({self.reading}, now {reading.VERSION}): fix its example again"
            )
        width = ffn.find(net, self.layer).width
        widths = {width}
        if self.layer == -1:  # s comes before the last layer, and must not change with a patch
            widths.add(width + reading.text_width(net))  # type: ignore[arg-type]
        if self.values.shape[1] != width or self.rows.width not in widths:
            raise WrongBase(
                f"patch {self.id} has keys of width {self.rows.width} and values of width "
                f"{self.values.shape[1]}, but layer {self.layer} of {type(net).__name__} has "
                f"queries of width {width}"
            )

    @property
    def reads_text(self) -> bool:
        """Whether the keys read the text's state beside the query of their position."""
        return self.keys.shape[1] > self.values.shape[1]

    @property
    def rows(self) -> Rows:
        """The neurons themselves."""
        return Rows(self.keys, self.bias, self.values)

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        for layer in {p.layer for p in (*before, *after) if isinstance(p, Neurons)}:
            place = ffn.find(net, layer)
            device = next(net.get_submodule(place.first).parameters()).device
            reading.widen(net, place, stack(after, layer, place.width).to(device))  # type: ignore[arg-type]


def stack(patches: Iterable[Patch], layer: int, width: int) -> Rows:
    """All neurons that these patches have in one layer, in their order."""
    parts = [p.rows for p in patches if isinstance(p, Neurons) and p.layer == layer]
    if not parts:
        return Rows.empty(width)
    wide = max(part.width for part in parts)
    return Rows(
        torch.cat([_as_wide(part, wide) for part in parts]),
        torch.cat([part.bias for part in parts]),
        torch.cat([part.values for part in parts]),
    )


def _as_wide(rows: Rows, wide: int) -> Tensor:
    """Keys that read their position alone, beside such as read the text: the rest is as zero."""
    return rows.keys if rows.width == wide else pad(rows.keys, (0, wide - rows.width))
