"""Random draws that are the same every time and leave the program's own as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draws of torch's global generators in this block: the CPU's, and those of this device.

    Torch would take care of every GPU of the machine if it were not told which one, and a worker
    that has one of them would hold memory on all.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
