"""A few keys times all queries of a memory: what a pass over it takes its time for."""

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 16_384  # rows that are looked at together
IN_CACHE = 1_024  # rows that stay in a CPU's cache: larger blocks take twice the time of five keys
FEW = 4


def products(keys: Tensor, rows: Tensor) -> Tensor:
    """(n, N): keys (n, d) times rows (N, d), in whatever precision, block by block."""
    some = keys.float().to(rows.device)
    if len(some) <= FEW and not rows.is_cuda:
        # a CPU's threads share a product of many rows with two columns or with four, but not its
        # transpose, nor one with a single column: that one takes three times as long
        columns = pad(some, (0, 0, 0, len(some) % 2)).T
        found = torch.cat([block.float() @ columns for block in rows.split(BLOCK)])
        return found[:, : len(some)].T.contiguous()
    size = BLOCK if rows.is_cuda else IN_CACHE
    return torch.cat([some @ block.float().T for block in rows.split(size)], dim=1)
