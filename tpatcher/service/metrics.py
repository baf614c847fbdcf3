"""What Prometheus is told."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Metrics:
    """Counters of one app; several can be in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tpatcher_requests", "Requests by route and status.", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.latency = Histogram(
            "tpatcher_seconds", "Seconds until the answer was sent.", ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
            registry=self.registry,
        )  # fmt: skip
        self.edits = Counter(
            "tpatcher_edits", "Edits by how they ended.", ["outcome"], registry=self.registry
        )
        self.refusals = Counter(
            "tpatcher_refusals", "Fixes that the guard refused, or would have in shadow.",
            registry=self.registry,
        )  # fmt: skip
        self.firings = Counter(
            "tpatcher_firings", "Answers that a fix fired on.", ["fix"], registry=self.registry
        )
        self.sync_errors = Counter(
            "tpatcher_sync_errors", "Failed looks at the store.", registry=self.registry
        )

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """A number that is read when it is asked for."""
        Gauge(f"tpatcher_{name}", about, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Measured:
    """Counts requests and their time, by the route's pattern: a client cannot invent labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(time.perf_counter() - began)
