"""The peak memory of a piece of work, beyond what was in use before it."""

import re
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def watch(device: torch.device) -> Callable[[], int | None]:
    """Start measuring. Call the result for the peak in bytes; None if the OS does not report it."""
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
