"""What happens to every request before any route sees it."""

import asyncio
import json
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpatcher.errors import Denied
from tpatcher.service.auth import Access, is_loopback
from tpatcher.service.limits import Limits
from tpatcher.service.metrics import Metrics

SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}


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


class StoppingMiddleware:
    """Tells whoever still waits at the end of a drain that nobody knows what was done."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def send_and_note(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except asyncio.CancelledError:  # the request, or the work that it waits for
            if scope["type"] != "http" or began:
                raise
            message = "the service is stopping; look whether this was done before you repeat it"
            await _send_error(send, 503, "Stopping", message)


class HeadersMiddleware:
    """Adds to every response what keeps a browser from doing more with it than show it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                named = {name.lower() for name, _ in headers}
                added = [(n, v) for n, v in SECURITY_HEADERS.items() if n not in named]
                message = {**message, "headers": [*headers, *added]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


class AccessMiddleware:
    """Refuses bodies that are too large or too slow and, without tokens, other machines' requests.

    Without tokens the Host header must be local and the Origin the service itself: a web page of
    another site or port that somebody here looks at could otherwise use the service in their name.
    With tokens, nothing is read of a body whose sender is not known.
    """

    def __init__(self, app: ASGIApp, limits: Limits, access: Access) -> None:
        self.app, self.limits, self.access = app, limits, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.lower(): v.decode("latin-1") for k, v in scope["headers"]}
        if not self.access.tokens and not _is_local(scope, headers):
            message = "without tokens this service answers its own machine only"
            await _send_error(send, 403, "Denied", message)
            return
        if self._knows(headers.get(b"authorization", "")):
            try:
                async with asyncio.timeout(self.limits.body_seconds):
                    body = await self._read(receive, headers.get(b"content-length", "0"))
            except TimeoutError:
                limit = f"{self.limits.body_seconds:g} s"
                await _send_error(send, 408, "TooSlow", f"the body was not there after {limit}")
                return
            except ConnectionError:
                return
            if body is None:
                message = f"a body may have {self.limits.body} bytes"
                await _send_error(send, 413, "TooLarge", message)
                return
        else:  # the route will say so, if it needs a token
            body, send = b"", _closing(send)
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, replay, send)

    def _knows(self, authorization: str) -> bool:
        """Whether whoever sends this header may send a body at all."""
        scheme, _, secret = authorization.partition(" ")
        try:
            self.access.caller(secret if scheme.lower() == "bearer" else None)
        except Denied:
            return False
        return True

    async def _read(self, receive: Receive, length: str) -> bytes | None:
        """The body; None if it is, or says that it is, too large."""
        body, more = bytearray(), True
        while more:
            if length.isdecimal() and int(length[:20]) > self.limits.body:
                return None
            received = await receive()
            if received["type"] != "http.request":
                raise ConnectionError("the client has gone")
            body += received.get("body", b"")
            more = received.get("more_body", False)
            if len(body) > self.limits.body:
                return None
        return bytes(body)


def _closing(send: Send) -> Send:
    """Let the connection end with the response, because the rest of the request is not read."""

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return send_and_close


def _is_local(scope: Scope, headers: dict[bytes, str]) -> bool:
    """Whether this machine asks, and no page but the service's own."""
    client, origin = scope.get("client"), headers.get(b"origin")
    host = headers.get(b"host", "localhost")
    return (
        (client is None or is_loopback(client[0]))
        and is_loopback(host)
        and (origin is None or urlsplit(origin).netloc == host)
    )


async def _send_error(send: Send, status: int, kind: str, message: str) -> None:
    """Answer with an error before any route was reached."""
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
