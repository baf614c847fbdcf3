"""A few vectors times many rows, as keys and a memory, in the time that reading the rows takes."""

from typing import Self, TypeVar

import torch
from torch import Tensor, nn

BLOCK = 4_096  # rows that are looked at together
IN_CACHE = 128  # rows of one small product: keys stay in a CPU's cache, and its threads share them
FEW = 96  # vectors, up to which small products take less time than a large one
FEWEST = 6  # up to which rows times vectors take less than vectors times rows
Net = TypeVar("Net", bound=nn.Module)


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


class FewRows(nn.Linear):
    """A matrix that has small products for the few rows of a short text: the same to rounding."""

    @classmethod
    def of(cls, stock: nn.Linear, tokens: Tensor | None = None) -> Self:
        """This for a stock matrix, or for the rows of it that these tokens have."""
        made = cls(1, 1, bias=stock.bias is not None, device="meta")
        for name, every in stock.named_parameters():
            some = every if tokens is None else nn.Parameter(every[tokens], requires_grad=False)
            setattr(made, name, some)
        made.out_features, made.in_features = made.weight.shape
        return made.train(stock.training)

    def forward(self, rows: Tensor) -> Tensor:
        few = rows[..., 0].numel() <= FEW and rows.dtype == self.weight.dtype == torch.float32
        if not few or rows.requires_grad or rows.is_cuda:
            return super().forward(rows)
        found = products(rows.flatten(0, -2), self.weight)
        found = found if self.bias is None else found + self.bias
        return found.view(*rows.shape[:-1], found.shape[-1])


def quickened(net: Net) -> Net:
    """A net, which must be nobody else's, with small products in its stock matrices."""
    for name, module in [*net.named_modules()]:
        changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        if type(module) is nn.Linear and not changed:
            parent, _, child = name.rpartition(".")
            setattr(net.get_submodule(parent), child, FewRows.of(module))
    return net
