"""Shapes are checked in tests: a tensor of another shape or type is refused."""

from typing import Any

import pytest
import torch

from tests.shapes import WrongShape
from tpatcher.models.traces import Trace


def trace(**changes: Any) -> Trace:
    """Three positions of a model of width 4."""
    row = torch.zeros(3, dtype=torch.long)
    given = {"queries": torch.zeros(3, 4), "states": torch.zeros(3, 8), "tokens": row}
    return Trace(**{**given, "owner": row, "best": row, "gap": torch.zeros(3), **changes})


def test_the_right_shapes_are_taken() -> None:
    assert trace().queries.shape == (3, 4)
    assert trace(states=torch.zeros(3, 0)).states.shape == (3, 0)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("queries", torch.zeros(3)),  # no width
        ("states", torch.zeros(2, 8)),  # of two positions
        ("tokens", torch.zeros(3)),  # not whole numbers
        ("gap", torch.zeros(4)),  # of four positions
        ("best", None),
    ],
)
def test_a_wrong_shape_is_refused(name: str, wrong: torch.Tensor | None) -> None:
    with pytest.raises(WrongShape, match=rf"Trace\.{name} "):
        trace(**{name: wrong})
