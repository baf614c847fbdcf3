"""A few vectors times many rows, as keys and a memory, in the time that reading the rows takes."""

import torch
from torch import Tensor

BLOCK = 4_096  # rows that are looked at together
IN_CACHE = 128  # rows of one small product: keys stay in a CPU's cache, and its threads share them
FEW = 96  # vectors, up to which small products take less time than a large one
FEWEST = 6  # up to which rows times vectors take less than vectors times rows


def products(keys: Tensor, rows: Tensor, step: int = 1) -> Tensor:
    """(n, N): keys (n, d) times rows (N, d), in whatever precision, block by block.

    With a step, times those rows alone that are `some_of` them.
    """
    some = keys.float().to(rows.device)
    small = len(some) <= FEW and not rows.is_cuda and not some.requires_grad
    times = _few if small else _many
    return torch.cat([times(some, block.float()) for block in rows.split(BLOCK)[::step]], dim=1)


def some_of(count: int, step: int) -> Tensor:
    """Which of so many rows are in every `step`-th block.

    >>> some_of(10_000, 2)[[0, 4095, 4096, -1]].tolist()
    [0, 4095, 8192, 9999]
    """
    return torch.cat(torch.arange(count, device="cpu").split(BLOCK)[::step])


def _few(keys: Tensor, rows: Tensor) -> Tensor:
    """A batch of small products.

    Of a few keys they take a CPU little longer than reading the rows does; one large product takes
    two to four times as long.
    """
    whole = len(rows) - len(rows) % IN_CACHE
    parts = rows[:whole].view(-1, IN_CACHE, rows.shape[1])
    if len(keys) <= FEWEST:
        found = torch.bmm(parts, keys.T.expand(len(parts), -1, -1)).flatten(0, 1).T
    else:
        found = torch.bmm(keys.expand(len(parts), -1, -1), parts.transpose(1, 2))
        found = found.transpose(0, 1).flatten(1)
    return torch.cat([found, keys @ rows[whole:].T], dim=1)


def _many(keys: Tensor, rows: Tensor) -> Tensor:
    return keys @ rows.T
