"""How much may be asked: body size, text length, batch, queue and rate."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from tpatcher.errors import BadInput, Busy
from tpatcher.example import refuse_empty


@dataclass(frozen=True)
class Limits:
    """The limits of a service; the defaults suit one machine."""

    body: int = 1 << 20  # bytes
    body_seconds: float = 15.0  # until a body is there
    text: int = 8_000  # characters
    batch: int = 64  # texts in one request
    queue: int = 512  # questions that wait
    edits: int = 16  # edits that wait, and as many undoings
    deadline: float | None = 30.0  # seconds that an edit may take; None: as long as it likes
    store: int = 32  # requests that wait for the store
    reports: int = 10_000  # reports that wait
    reports_each: int = 1_000  # of them, of one caller who is no admin
    fixes_a_day: int = 1_000  # of one caller who is no admin
    streams: int = 32  # answers that are streamed, or wait to be
    rate: float = 100.0  # requests a second and caller
    burst: int = 200

    def check(self, texts: Sequence[str]) -> None:
        """Raise `BadInput` for too many texts, or for a text that is too long or empty."""
        if not texts or len(texts) > self.batch:
            raise BadInput(f"{len(texts)} texts were given; 1 to {self.batch} are allowed")
        for text in texts:
            if len(text) > self.text:
                raise BadInput(f"a text has {len(text)} characters; {self.text} are allowed")
            refuse_empty(text)


class Rate:
    """A bucket of requests for each caller, filled up at a steady rate."""

    def __init__(self, limits: Limits, callers: int = 10_000) -> None:
        self.limits, self.callers = limits, callers
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.lock = threading.Lock()

    def take(self, caller: str) -> None:
        """Count one request; raises `Busy` with the time to wait if there were too many."""
        now, rate, burst = time.monotonic(), self.limits.rate, self.limits.burst
        with self.lock:
            left, then = self.buckets.pop(caller, (float(burst), now))
            left = min(burst, left + (now - then) * rate)
            self.buckets[caller] = (max(left - 1, 0.0) if left >= 1 else left, now)
            if len(self.buckets) > self.callers:
                self.buckets.popitem(last=False)
        if left < 1:
            raise Busy(f"more than {rate:g} requests a second", after=(1 - left) / rate)
