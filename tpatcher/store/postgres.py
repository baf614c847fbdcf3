"""Connections to PostgreSQL that wait for nothing without end."""

import time
from collections.abc import Generator
from typing import Any

import psycopg
import sqlalchemy as sa

ANSWER_WITHIN = 20.0  # seconds; the server's own limits cannot help if the server itself is stopped
LIMITS = {
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "15s",
}
NETWORK: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}


class PatientConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server has not answered for a while."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
        """Wait for an answer, as the driver does, but only so long."""
        return super().wait(self._bounded(gen), *args, **more)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The driver's generator, ended when it has had its time; it is resumed ten times a
        second while nothing comes."""
        ends_at = time.monotonic() + ANSWER_WITHIN
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as done:
                return done.value
            ready = yield wanted
            if not ready and time.monotonic() > ends_at:
                self.close()
                raise psycopg.OperationalError(f"no answer for {ANSWER_WITHIN:g} s")


def create_engine(url: sa.URL) -> sa.Engine:
    """An engine whose every wait has an end."""
    options = " ".join(f"-c {name}={value}" for name, value in LIMITS.items())
    engine = sa.create_engine(
        url, pool_pre_ping=True, pool_timeout=5, connect_args={"options": options, **NETWORK}
    )

    @sa.event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, args: list[Any], more: dict[str, Any]) -> Any:
        return PatientConnection.connect(*args, **more)

    return engine


def listen(url: sa.URL) -> PatientConnection:
    """A connection that is notified of every new entry of the store's log."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = PatientConnection.connect(plain, autocommit=True, **NETWORK)
    connection.execute("LISTEN tpatcher")
    return connection
