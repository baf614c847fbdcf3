"""Where an activation function has gone flat: the paper's β and γ."""

from collections.abc import Callable

import torch
from torch import Tensor


def thresholds(act: Callable[[Tensor], Tensor], flat: float = 0.005) -> tuple[float, float]:
    """β and γ of an activation function: the paper's for ReLU and GeLU, found for any other.

    β is where the function has gone flat: below it |Act| stays under `flat`.
    """
    grid = torch.linspace(-20, 0, 20_001, dtype=torch.float64)
    with torch.no_grad():
        value = act(grid.float()).double().abs()
    above = (value >= flat).nonzero()
    beta = float(grid[above[0]]) if len(above) else 0.0
    beta = -3.0 if -3.1 < beta < -2.8 else round(beta, 3)  # GeLU in any form: the paper's -3
    return (beta, -beta) if beta else (0.0, 0.0)
