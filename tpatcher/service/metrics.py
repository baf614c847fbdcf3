"""The metrics for Prometheus."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The metrics of one app; a process may have several apps."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        self.requests = counter("tpatcher_requests", "Requests.", ["route", "status"])
        self.latency = Histogram(
            "tpatcher_seconds",
            "Seconds until the answer was sent.",
            ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
            registry=self.registry,
        )
        self.edits = counter("tpatcher_edits", "Edits that were tried.", ["outcome"])
        about = "Fixes that the guard refused, or would have if not in shadow."
        self.refusals = counter("tpatcher_refusals", about)
        self.firings = counter("tpatcher_firings", "Answers that a fix fired on.", ["fix"])
        self.sync_errors = counter("tpatcher_sync_errors", "Failed attempts to follow the store.")

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Add a number that is read whenever metrics are asked for."""
        Gauge(f"tpatcher_{name}", about, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)
