"""Patches to fill a store with."""

import torch

from tpatcher.example import Example
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.neurons import Neurons


def patch(n: int, d: int = 32) -> Neurons:
    """A patch that differs from the others in every number."""
    one = torch.full((1, d), float(n))
    return Neurons(
        example=Example(f"question {n}", "yes"),
        editor="t-patcher",
        certificate=Certificate(steps=n),
        layer=-1,
        keys=one,
        bias=one[0, :1],
        values=one,
        queries=one,
        states=one,
        tokens=torch.tensor([1]),
    )
