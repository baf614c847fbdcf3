"""Connections that send or take too slowly end; and there are never too many of them."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # Windows has no limit of this sort
    resource = None  # type: ignore[assignment]

MAX_CONNECTIONS = 1000
HEADER_SECONDS = 10.0  # until a request's headers are there
TAKE_SECONDS = 30.0  # that a client may leave a full buffer of a response as it is
OTHER_FILES = 100  # that the process needs beside its connections


class BoundedProtocol(H11Protocol):
    """uvicorn's own protocol, with limits for their number and for the time that a client takes.

    Beyond the limit a connection is closed at once. Without one the process would run out of file
    descriptors, and nobody could get in, while asyncio fills the log. One address may have half of
    them, so that it cannot keep the others out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        most = max_connections()
        mine = sum(_address(one) == _address(self) for one in self.connections)
        if len(self.connections) > most or mine > most // 2:
            transport.abort()
        else:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read what it asked for, but not for ever."""
        super().pause_writing()
        self._taking = self.loop.call_later(TAKE_SECONDS, self._end)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read what came; a piece of the headers gives the others no more time."""
        if self._timer is None and self._waits_for_headers():
            self._timer = self.loop.call_later(HEADER_SECONDS, self._end)
        super().data_received(data)
        if not self._waits_for_headers():
            self._stop_timer()

    def _waits_for_headers(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.transport.abort()


def _address(protocol: Any) -> str | None:
    return protocol.client[0] if protocol.client else None


def max_connections() -> int:
    """How many connections may be open: fewer where the process may open few files."""
    if resource is None:
        return MAX_CONNECTIONS
    files: Any = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(8, min(MAX_CONNECTIONS, files - OTHER_FILES))
