"""Opening a store's database, and making its tables."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import BadInput, Damaged, NotStored
from tpatcher.patches.pack import Base
from tpatcher.store.tables import ABOUT, METADATA

VERSION = 3  # of the tables; 1 and 2 were never released
DAMAGED = ("malformed", "not a database", "invalid page", "no such table", "Could not decode")
SQLITE_TIMEOUT = 5.0  # seconds that a writer waits for another one
LOCK = 0x7A7C  # any number that every writer of a PostgreSQL store agrees on


def connect(url: str | Path) -> sa.Engine:
    """An engine for a path (SQLite) or a URL; what it commits is on the disk."""
    text = str(url)
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        name = sa.make_url(text)
        if name.get_backend_name() == "sqlite":
            return _sqlite(name)
        if name.get_backend_name() == "postgresql":
            from tpatcher.store import postgres  # its driver is only needed here

            return postgres.create_engine(name)
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        shown = re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", text)  # without a password
        raise BadInput(f"{shown} cannot be opened as a store: {error}") from error
    raise BadInput(
        f"a store is a file (SQLite) or a postgresql+psycopg:// URL, not {name.drivername}"
    )


def lock(connection: sa.Connection) -> None:
    """Let no other writer in until this transaction ends; SQLite's BEGIN IMMEDIATE has done so."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))


def refuse_if_taken(connection: sa.Connection) -> None:
    """Raise `BadInput` if the database has tables of the names that a store gives to its own."""
    if taken := sorted(METADATA.tables.keys() & set(sa.inspect(connection).get_table_names())):
        raise BadInput(
            f"the database has tables already that a new store would make ({', '.join(taken)}); "
            "give an empty one"
        )


def prepare(connection: sa.Connection, base: Base, new: bool = False) -> Base:
    """Make the tables of a new store; returns the base model that the store is for."""
    about = None
    if not new and sa.inspect(connection).has_table("about"):
        about = connection.execute(sa.select(ABOUT)).one_or_none()
    if about is None:
        refuse_if_taken(connection)
        METADATA.create_all(connection)
        values = {"version": VERSION, "base_name": base.name, "base": base.fingerprint}
        connection.execute(ABOUT.insert().values(**values))
        return base
    if about.version != VERSION:
        older = "export its fixes as a pack with the tpatcher that wrote it, and import that"
        raise BadInput(
            f"this store has version {about.version}, but this tpatcher reads version {VERSION}; "
            + ("use a newer tpatcher" if about.version > VERSION else older)
        )
    return Base(about.base_name, about.base)


def file_of(engine: sa.Engine) -> tuple[int, int] | None:
    """What identifies the file of a SQLite store; None if there is none."""
    if engine.dialect.name != "sqlite":
        return None
    try:
        found = Path(str(engine.url.database)).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
        if any(sign in reason for sign in DAMAGED):
            raise Damaged(f"the store's database is damaged: {reason}") from error
        raise NotStored(f"the store failed, and nothing was changed: {reason}") from error


def _sqlite(name: sa.URL) -> sa.Engine:
    if not name.database or name.database == ":memory:":
        raise BadInput("a store in memory would be lost; give the path of a file")
    engine = sa.create_engine(name, pool_timeout=5, connect_args={"timeout": SQLITE_TIMEOUT})

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
