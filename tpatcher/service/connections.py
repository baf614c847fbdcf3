"""Connections that send nothing, or too slowly, end; and there are never too many of them."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # Windows has no limit of this sort
    resource = None  # type: ignore[assignment]

MAX_CONNECTIONS = 1000
HEADER_SECONDS = 10.0  # until a request's headers are there
OTHER_FILES = 100  # that the process needs beside its connections


class BoundedProtocol(H11Protocol):
    """uvicorn's own protocol, with a limit for their number and for the time that headers take.

    Beyond the limit a connection is closed at once. Without one the process would run out of file
    descriptors, and nobody could get in, while asyncio fills the log.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) > max_connections():
            transport.abort()
        else:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        super().connection_lost(exc)

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


def max_connections() -> int:
    """How many connections may be open: fewer where the process may open few files."""
    if resource is None:
        return MAX_CONNECTIONS
    files: Any = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(8, min(MAX_CONNECTIONS, files - OTHER_FILES))
