"""Opening a store's database, and bringing its tables up to date."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import BadInput, Damaged, NotStored
from tpatcher.store.tables import ABOUT, ENTRY, EVENT, METADATA, MOVE, PATCH, REPORT, TAUGHT

LOCK = 0x7A7C  # any number that every writer of a PostgreSQL store agrees on


def chain(connection: sa.Connection) -> None:
    """Version 1: the chain of patches."""
    METADATA.create_all(connection, tables=[ABOUT, ENTRY, PATCH])


def queue(connection: sa.Connection) -> None:
    """Version 2: the queue of reports, and the audit log."""
    METADATA.create_all(connection, tables=[REPORT, EVENT])


def moving(connection: sa.Connection) -> None:
    """Version 3: where the chain goes on, and the fixes that its base was taught before."""
    METADATA.create_all(connection, tables=[MOVE, TAUGHT])


# Step n makes version n + 1 out of version n. A step that was released is never changed.
MIGRATIONS: list[Callable[[sa.Connection], None]] = [chain, queue, moving]


def connect(url: str | Path) -> sa.Engine:
    """An engine for a path (SQLite) or a URL, set up so that what is committed is on the disk."""
    text = str(url)
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        name = sa.make_url(text)
        if name.get_backend_name() == "sqlite":
            return _sqlite(name)
        if name.get_backend_name() == "postgresql":
            more = {"options": "-c synchronous_commit=on", "connect_timeout": 10}
            return sa.create_engine(name, pool_pre_ping=True, connect_args=more)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise BadInput(f"{url!s} cannot be opened as a store: {error}") from error
    raise BadInput(
        f"a store is a file (SQLite) or a postgresql+psycopg:// URL, not {name.drivername}"
    )


def lock(connection: sa.Connection) -> None:
    """Let no other writer in until this transaction ends; SQLite's BEGIN IMMEDIATE has done so."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))


def migrate(connection: sa.Connection, base_name: str, base: str) -> tuple[str, str]:
    """Bring the tables up to date; returns the base model that the store is for."""
    found = None
    if sa.inspect(connection).has_table("about"):
        found = connection.execute(sa.select(ABOUT)).one_or_none()
    version = found.version if found else 0
    if version > len(MIGRATIONS):
        raise BadInput(
            f"this store has version {version}, but this tpatcher knows up to {len(MIGRATIONS)}; "
            "use a newer tpatcher"
        )
    for step in MIGRATIONS[version:]:
        step(connection)
    values: dict[str, Any] = {"version": len(MIGRATIONS)}
    if found is None:
        connection.execute(ABOUT.insert().values(**values, base_name=base_name, base=base))
        return base_name, base
    if version < len(MIGRATIONS):
        connection.execute(ABOUT.update().values(**values))
    return found.base_name, found.base


@contextmanager
def translate_errors() -> Iterator[None]:
    """The database's errors in tpatcher's words."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise BadInput(f"a text holds characters that cannot be stored: {error.reason}") from error
    except sa.exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        if isinstance(error, sa.exc.DataError) or "NUL" in reason:
            raise BadInput(f"a text holds characters that cannot be stored: {reason}") from error
        if any(
            sign in reason
            for sign in ("malformed", "not a database", "invalid page", "no such table")
        ):
            raise Damaged(f"the store's database is damaged: {reason}") from error
        raise NotStored(f"the store failed, and nothing was changed: {reason}") from error


def _sqlite(name: sa.URL) -> sa.Engine:
    if not name.database or name.database == ":memory:":
        raise BadInput("a store in memory would be lost; give the path of a file")
    engine = sa.create_engine(name, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def settle(connection: Any, record: object) -> None:
        connection.isolation_level = None  # the driver's own BEGIN comes too late to be a lock
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
