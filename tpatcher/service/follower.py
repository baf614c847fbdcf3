"""Keeping up with the store: what another process fixes or undoes is worn here within a second."""

import logging
import threading
import time
from concurrent.futures import Future, wait

import psycopg
import sqlalchemy as sa

from tpatcher.errors import StoreMoved, TPatcherError
from tpatcher.service.live import Desk
from tpatcher.service.metrics import Metrics
from tpatcher.store.store import Store

LOG = logging.getLogger("tpatcher.replicas")
PAUSE = 10.0  # seconds until a move that failed is tried again


class Follower:
    """A thread that looks at the store's head, when PostgreSQL says so and every half second."""

    def __init__(self, desk: Desk, metrics: Metrics, every: float = 0.5) -> None:
        self.desk, self.metrics, self.every = desk, metrics, every
        self.ended = threading.Event()
        self.looked = time.monotonic()  # when the store was last seen to be in order
        self.connection: psycopg.Connection | None = None
        self.heard: Store | None = None  # whose connection it is
        self.thread = threading.Thread(target=self._loop, name="follower", daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.ended.set()
        self.thread.join()

    @property
    def behind(self) -> float:
        """Seconds since the store could be read."""
        return time.monotonic() - self.looked

    def _loop(self) -> None:
        failing = False
        while not self.ended.is_set():
            try:
                if self.desk.store.head != self.desk.now.head:
                    self._patiently(self.desk.write(self.desk.sync))
                self.looked, failing = time.monotonic(), False
            except TPatcherError as error:
                self.metrics.sync_errors.inc()
                if not failing:  # once, not twice a second
                    LOG.warning("the store cannot be followed: %r", str(error))
                failing = True
                if isinstance(error, StoreMoved):  # a base is no small thing to load over and over
                    self.ended.wait(PAUSE)
            self._wait()
        if self.connection is not None:
            self.connection.close()

    def _patiently(self, work: "Future[bool]") -> None:
        """Until the writer is done: a move to another base takes its time, and is no failure."""
        while not work.done() and not self.ended.is_set():
            wait([work], timeout=self.every)
            self.looked = time.monotonic()
        if work.done():
            work.result()

    def _wait(self) -> None:
        """Until something was notified, or for a while."""
        store = self.desk.store
        if store.engine.dialect.name != "postgresql":
            self.ended.wait(self.every)
            return
        try:
            if self.connection is None or self.connection.closed or self.heard is not store:
                if self.connection is not None:
                    self.connection.close()
                self.connection, self.heard = listen(store.engine.url), store
                return  # look once more: something may have come before we listened
            for _ in self.connection.notifies(timeout=self.every, stop_after=1):
                pass
        except (psycopg.Error, OSError):
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            self.ended.wait(self.every)


def listen(url: sa.URL) -> psycopg.Connection:
    """A connection of its own that hears of every new entry."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg.connect(plain, autocommit=True, connect_timeout=10)
    connection.execute("LISTEN tpatcher")
    return connection
