"""How long the edit under way may still take; what takes long in an edit asks now and then."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tpatcher.errors import NotFixed


@dataclass(frozen=True)
class Deadline:
    """When an edit must end, and an event that ends it before."""

    seconds: float | None
    ends_at: float
    stop: threading.Event | None


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def limit(seconds: float | None, stop: threading.Event | None = None) -> Iterator[None]:
    """End an edit in this block after `seconds` (None: never) or when `stop` is set."""
    ends_at = float("inf") if seconds is None else time.monotonic() + seconds
    token = _CURRENT.set(Deadline(seconds, ends_at, stop))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check() -> None:
    """Raise `NotFixed` if the edit under way has had its time, or is to stop."""
    now = _CURRENT.get()
    if now is None:
        return
    if now.stop is not None and now.stop.is_set():
        raise NotFixed("the edit was stopped before it was done; nothing was changed")
    if time.monotonic() >= now.ends_at:
        raise NotFixed(
            f"the edit was not done after {now.seconds:g} s, which is all that an edit may take; "
            "nothing was changed. Fewer rephrasings, or ones nearer to the text, take less"
        )
