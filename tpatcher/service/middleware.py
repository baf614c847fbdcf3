"""What happens to every request before any route sees it."""

import json
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpatcher.service.auth import is_loopback
from tpatcher.service.metrics import Metrics


class MetricsMiddleware:
    """Counts requests and times them by the route's pattern: a client cannot invent labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(time.perf_counter() - began)


class AccessMiddleware:
    """Refuses bodies that are too large and, if `local_only`, requests from other machines.

    The Host and Origin headers must be local too: a web page of another site that somebody on
    this machine looks at could otherwise use the service in their name.
    """

    def __init__(self, app: ASGIApp, max_body: int, local_only: bool) -> None:
        self.app, self.max_body, self.local_only = app, max_body, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.lower(): v.decode("latin-1") for k, v in scope["headers"]}
        if self.local_only and not _is_local(scope, headers):
            message = "without tokens this service answers its own machine only"
            await send_error(send, 403, "Denied", message)
            return
        body, more = b"", True
        length = headers.get(b"content-length", "0")
        while more and (not length.isdecimal() or int(length) <= self.max_body):
            received = await receive()
            if received["type"] != "http.request":
                return
            body += received.get("body", b"")
            more = received.get("more_body", False)
            if len(body) > self.max_body:
                break
        if more or len(body) > self.max_body:
            await send_error(send, 413, "TooLarge", f"a body may have {self.max_body} bytes")
            return
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, replay, send)


def _is_local(scope: Scope, headers: dict[bytes, str]) -> bool:
    client, origin = scope.get("client"), headers.get(b"origin")
    return (
        (client is None or is_loopback(client[0]))
        and is_loopback(headers.get(b"host", "localhost"))
        and (origin is None or is_loopback(urlsplit(origin).netloc))
    )


async def send_error(send: Send, status: int, kind: str, message: str) -> None:
    """Answer with an error before any route was reached."""
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
