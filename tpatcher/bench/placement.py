"""Which device each worker has: several share out the GPUs of a machine."""

from collections.abc import Sequence

import torch

from tpatcher.errors import BadInput


def gpus() -> int:
    """How many GPUs torch sees on this machine."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def on_gpu(device: str | None) -> bool:
    """Whether this is a GPU, or one of them."""
    return device is not None and device.startswith("cuda")


def devices(device: str | None, workers: int) -> Sequence[str | None]:
    """The device of each worker of this machine: with "cuda" the GPUs go round, one a worker.

    >>> devices("cpu", 2)
    ['cpu', 'cpu']
    """
    if not on_gpu(device):
        return [device] * workers
    there = gpus()
    if not there:
        raise BadInput(f"{device} was asked for, but torch sees no GPU here: give cpu, or none")
    if device != "cuda":
        return [device] * workers
    return [f"cuda:{i % there}" for i in range(workers)]
