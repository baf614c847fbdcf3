"""The shapes of the tensors that data classes hold, checked in every test that makes one.

The package itself knows nothing of this: `install`, called by conftest.py, adds the check.
"""

from functools import wraps
from typing import Any

from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.models.traces import Trace
from tpatcher.nets.rows import Rows
from tpatcher.patches.neurons import Neurons

# P positions, d the width of a query, w with the text's state beside it, s that of a state;
# N queries in a memory; n neurons.
# The same letter is the same number within one object.
SHAPES: dict[type, dict[str, Any]] = {
    Trace: {
        "queries": Float[Tensor, "P w"],
        "states": Float[Tensor, "P s"],
        "tokens": Int[Tensor, "P"],
        "owner": Int[Tensor, "P"],
        "best": Int[Tensor, "P"],
        "gap": Float[Tensor, "P"],
    },
    Memory: {
        "queries": Float[Tensor, "N w"],
        "answers": Int[Tensor, "N"] | None,
        "states": Float[Tensor, "N s"] | None,
        "owner": Int[Tensor, "N"] | None,
        "gap": Float[Tensor, "N"] | None,
    },
    Rows: {
        "keys": Float[Tensor, "n w"],
        "bias": Float[Tensor, "n"],
        "values": Float[Tensor, "n d"],
    },
    Neurons: {
        "keys": Float[Tensor, "n w"],
        "bias": Float[Tensor, "n"],
        "values": Float[Tensor, "n d"],
        "queries": Float[Tensor, "P w"],
        "states": Float[Tensor, "P s"],
        "tokens": Int[Tensor, "P"],
    },
}


class WrongShape(TypeError):
    """A field has another shape or type than the others, or the table above, ask for."""


def check(thing: object) -> None:
    """Raise WrongShape if the fields of an object do not have the shapes of the table."""
    shapes = SHAPES[type(thing)]
    if all(_empty(getattr(thing, name)) for name in shapes):
        return  # it holds nothing yet, so it has no width
    with jaxtyped("context"):  # binds P, d, … for all fields together
        for name, shape in shapes.items():
            if not isinstance(getattr(thing, name), shape):
                held = {n: _told(getattr(thing, n)) for n in shapes}
                raise WrongShape(f"{type(thing).__name__}.{name} is no {shape}; it holds {held}")


def install() -> None:
    """Check every object of these classes as soon as it is made."""
    for kind in SHAPES:
        kind.__init__ = _checked(kind.__init__)  # type: ignore[misc]


def _checked(init: Any) -> Any:
    @wraps(init)
    def checked(self: object, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        check(self)

    return checked


def _empty(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 0


def _told(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)
