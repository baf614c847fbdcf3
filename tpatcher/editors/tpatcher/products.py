"""Keys times a memory's rows, in the order that a processor takes least time for."""

import torch
from torch import Tensor

BLOCK = 16_384  # rows that are looked at together
IN_CACHE = 128  # rows of one small product: keys stay in a CPU's cache, and its threads share them
FEW = 8


def products(keys: Tensor, rows: Tensor) -> Tensor:
    """(n, N): keys (n, d) times rows (N, d), in whatever precision, block by block."""
    some = keys.float().to(rows.device)
    times = _few if len(some) <= FEW and not rows.is_cuda else _many
    return torch.cat([times(some, block.float()) for block in rows.split(BLOCK)], dim=1)


def _few(keys: Tensor, rows: Tensor) -> Tensor:
    """A batch of small products.

    They take a CPU little longer than reading the rows does; one large product of so few keys takes
    up to twice as long.
    """
    whole = len(rows) - len(rows) % IN_CACHE
    parts = rows[:whole].view(-1, IN_CACHE, rows.shape[1])
    found = torch.bmm(keys.expand(len(parts), -1, -1), parts.transpose(1, 2))  # (parts, n, rows)
    return torch.cat([found.transpose(0, 1).flatten(1), keys @ rows[whole:].T], dim=1)


def _many(keys: Tensor, rows: Tensor) -> Tensor:
    return keys @ rows.T
