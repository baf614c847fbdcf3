"""Following the store: what another process fixes or undoes is applied here within a second."""

import logging
import threading
import time
from concurrent.futures import Future, wait

import psycopg

from tpatcher.errors import TPatcherError
from tpatcher.service.lane import Lane
from tpatcher.service.live import LiveModel
from tpatcher.service.metrics import Metrics
from tpatcher.store.postgres import listen
from tpatcher.store.store import Store

LOG = logging.getLogger("tpatcher.service")
PATIENCE = 10.0  # seconds without the store until the service counts as not ready


class Follower:
    """A thread that reads the store's head every half second, and when PostgreSQL notifies it."""

    def __init__(self, live: LiveModel, metrics: Metrics, every: float = 0.5) -> None:
        self._live, self._metrics, self._every = live, metrics, every
        self._lane = Lane("synchronisations", limit=1)
        self._ended = threading.Event()
        self._in_order_at = time.monotonic()
        self._error: str | None = None
        self._connection: psycopg.Connection | None = None
        self._connected_to: Store | None = None
        self._thread = threading.Thread(target=self._loop, name="follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._ended.set()
        self._thread.join(2 * self._every + 2)  # no longer, if the store does not answer
        self._lane.close()

    @property
    def problem(self) -> str | None:
        """Why the store could not be followed for ten seconds; None if it could."""
        seconds = time.monotonic() - self._in_order_at
        if seconds <= PATIENCE:
            return None
        return f"the store could not be followed for {seconds:.0f} s: {self._error or 'no answer'}"

    def _loop(self) -> None:
        while not self._ended.is_set():
            try:
                if self._live.store.head != self._live.now.head:
                    self._wait_for(self._lane.submit(self._live.sync))
                self._in_order_at, self._error = time.monotonic(), None
                self._wait_for_news()
            except Exception as error:  # whatever it is, the next look may succeed
                self._note(error)
                self._ended.wait(self._every)
        if self._connection is not None:
            self._connection.close()

    def _note(self, error: Exception) -> None:
        """Keep why the store could not be followed; it is logged once, not twice a second."""
        self._metrics.sync_errors.inc()
        why = str(error) if isinstance(error, TPatcherError) else repr(error)
        if self._error is None:
            LOG.warning("the store cannot be followed: %r", why)
        self._error = why

    def _wait_for(self, work: "Future[bool]") -> None:
        """Wait for what takes long, such as another base that is loaded.

        The first time all is well meanwhile. If it fails, nothing was well since it began; and
        while it is tried again the service stays as it is, not ready.
        """
        before = self._in_order_at
        while not wait([work], timeout=self._every).done and not self._ended.is_set():
            if self._error is None:
                self._in_order_at = time.monotonic()
        if work.done():
            try:
                work.result()
            except BaseException:
                self._in_order_at = before
                raise

    def _wait_for_news(self) -> None:
        """Wait for a notification, or half a second."""
        store = self._live.store
        if store.engine.dialect.name != "postgresql":
            self._ended.wait(self._every)
            return
        connection = self._connection
        try:
            if connection is None or connection.closed or self._connected_to is not store:
                if connection is not None:
                    connection.close()
                self._connection, self._connected_to = listen(store.engine.url), store
                return  # look once more: something may have come before we listened
            for _ in connection.notifies(timeout=self._every, stop_after=1):
                pass
        except (psycopg.Error, OSError):
            if connection is not None:
                connection.close()
            self._connection = None
            self._ended.wait(self._every)
