"""How much may be asked: body size, text length, batch, queue and rate."""

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpatcher.errors import BadInput, Busy
from tpatcher.service.auth import is_loopback


@dataclass(frozen=True)
class Limits:
    """All of them, with what suits one machine."""

    body: int = 1 << 20  # bytes
    text: int = 8_000  # characters
    batch: int = 64  # texts in one request
    queue: int = 512  # questions that wait
    edits: int = 16  # changes that wait
    reports: int = 10_000  # reports that wait
    rate: float = 100.0  # requests a second and caller
    burst: int = 200

    def check(self, texts: Sequence[str]) -> None:
        """`BadInput` for too many texts, or one that is too long or empty."""
        if not texts or len(texts) > self.batch:
            raise BadInput(f"{len(texts)} texts were given; 1 to {self.batch} are allowed")
        for text in texts:
            if len(text) > self.text:
                raise BadInput(f"a text has {len(text)} characters; {self.text} are allowed")
            if not text.strip():
                raise BadInput("an empty text was given; it needs at least one word")


class Rate:
    """A bucket of requests for each caller, filled up at a steady rate."""

    def __init__(self, limits: Limits, callers: int = 10_000) -> None:
        self.limits, self.callers = limits, callers
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.lock = threading.Lock()

    def take(self, caller: str) -> None:
        """One request; `Busy` with the time to wait if the bucket is empty."""
        now, rate, burst = time.monotonic(), self.limits.rate, self.limits.burst
        with self.lock:
            left, then = self.buckets.pop(caller, (float(burst), now))
            left = min(burst, left + (now - then) * rate)
            self.buckets[caller] = (max(left - 1, 0.0) if left >= 1 else left, now)
            if len(self.buckets) > self.callers:
                self.buckets.popitem(last=False)
        if left < 1:
            raise Busy(f"more than {rate:g} requests a second", after=(1 - left) / rate)


class Gate:
    """In front of everything: bodies of bounded size, and without tokens only this machine.

    The Host and Origin headers are checked too, or a web page that somebody on this machine
    looks at could use the service in their name.
    """

    def __init__(self, app: ASGIApp, body: int, local: bool) -> None:
        self.app, self.body, self.local = app, body, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.lower(): v.decode("latin-1") for k, v in scope["headers"]}
        if self.local and not self._is_local(scope, headers):
            message = "without tokens this service answers its own machine only"
            await refuse(send, 403, "Denied", message)
            return
        body, more = b"", True
        length = headers.get(b"content-length", "0")
        while more and (not length.isdecimal() or int(length) <= self.body):
            message_in = await receive()
            if message_in["type"] != "http.request":
                return
            body += message_in.get("body", b"")
            more = message_in.get("more_body", False)
            if len(body) > self.body:
                break
        if more or len(body) > self.body:
            await refuse(send, 413, "TooLarge", f"a body may have {self.body} bytes")
            return
        replayed = False

        async def again() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, again, send)

    def _is_local(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        client = scope.get("client")
        origin = headers.get(b"origin")
        return (
            (client is None or is_loopback(client[0]))
            and is_loopback(headers.get(b"host", "localhost"))
            and (origin is None or is_loopback(urlsplit(origin).netloc))
        )


async def refuse(send: Send, status: int, kind: str, message: str) -> None:
    """An error from before there is a request to answer."""
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
