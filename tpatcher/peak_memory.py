"""The most memory that a stretch of work takes beyond what was held before, as Linux counts it."""

import re
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def watch(device: torch.device) -> Callable[[], int | None]:
    """Begin to watch; the answer is called for the bytes, None where nobody counts them."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        return lambda: torch.cuda.max_memory_allocated(device) - before
    try:
        RESET.write_text("5")  # the highest mark falls back to what is held now
        held = _read("VmRSS")
    except OSError:
        return lambda: None
    return lambda: max(0, _read("VmHWM") - held)


def _read(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{STATUS} has no {name}")
    return 1024 * int(found[1])
