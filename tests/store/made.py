"""Patches to fill a store with."""

import sqlalchemy as sa
import torch

from tpatcher.example import Example
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.neurons import Neurons
from tpatcher.store.store import Store
from tpatcher.store.tables import PATCH


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


def spoil(store: Store, id: int) -> None:
    """Flip one bit of a fix."""
    with store.writing() as connection:
        where = PATCH.c.id == id
        blob = bytearray(connection.execute(sa.select(PATCH.c.tensors).where(where)).scalar_one())
        blob[-5] ^= 1
        connection.execute(PATCH.update().where(where).values(tensors=bytes(blob)))
