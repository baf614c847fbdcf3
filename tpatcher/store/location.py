"""Where the fixes of a store go on: here, or in another store on a base that has learned them.

The newest entry of a log may be a move: it names the new base model and its store, and from then
on this store takes no change but the one that undoes the move. The new store keeps the examples
that its base has learned. `tpatcher.checkpoints.handover` makes the move.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tpatcher.errors import Damaged, NotFound, StoreMoved
from tpatcher.example import Example
from tpatcher.store import engine, log
from tpatcher.store.tables import MOVE, TAUGHT

if TYPE_CHECKING:
    from tpatcher.store.store import Store

MAX_MOVES = 1000  # moves that are followed: more must be a circle


@dataclass(frozen=True)
class Successor:
    """Where a store goes on: the new base model's directory, and the store of its fixes."""

    model: str
    store: str  # without a password: who follows has one, or the environment


def successor(store: "Store") -> Successor | None:
    """Where the store goes on; None if it has not moved."""
    with store.reading() as connection:
        return _successor(connection)


def record_move(store: "Store", to: Successor, *, parent: int, who: str = "") -> int:
    """Write down where the store goes on; returns the number of that entry."""
    row = {"model": to.model, "store": to.store}
    with store.writing() as connection:
        return store.add_entry(connection, "move", parent=parent, who=who, payload=row, table=MOVE)


def undo_move(store: "Store", *, who: str = "") -> int:
    """Roll back the move, so that this store goes on as it was before; returns the new head."""
    with store.writing() as connection:
        if _successor(connection) is None:
            raise NotFound("this store has not moved, so there is nothing to undo")
        before = log.newest(connection)[0] - 1
        return store.add_entry(connection, "rollback", target=before, who=who, undoing=True)


def refuse_if_moved(connection: sa.Connection) -> None:
    """Raise `StoreMoved` if the newest entry is a move."""
    if to := _successor(connection):
        raise StoreMoved(
            f"this store has moved: its fixes are in {to.model!r}, kept on in {to.store!r}"
        )


def record_learned(store: "Store", examples: Iterable[Example]) -> None:
    """Keep the examples that the store's base has learned: later fixes must leave them alone."""
    rows = [{"example": json.dumps(e.to_json(), ensure_ascii=False)} for e in examples]
    with store.writing() as connection:
        if rows:
            connection.execute(TAUGHT.insert(), rows)


def learned(store: "Store") -> list[Example]:
    """The examples that the store's base had learned before its first fix."""
    with store.reading() as connection:
        rows = connection.execute(sa.select(TAUGHT.c.example).order_by(TAUGHT.c.id)).scalars()
        return [Example.from_json(json.loads(row)) for row in rows]


def follow(model: str, url: str | Path) -> tuple[str, str]:
    """The base and the store at the end of all moves; those given if the store has not moved."""
    here = str(url)
    for _ in range(MAX_MOVES):
        with peek(here) as connection:
            if connection is None or not sa.inspect(connection).has_table("move"):
                return model, here
            to = _successor(connection)
        if to is None:
            return model, here
        model, here = to.model, with_password(to.store, here)
    raise Damaged(f"the store {without_password(here)} moves in a circle; undo one of the moves")


@contextmanager
def peek(url: str) -> Iterator[sa.Connection | None]:
    """A read-only connection; None if the SQLite file does not exist (it is not created)."""
    if "://" not in url and not Path(url).exists():
        yield None
        return
    opened = engine.connect(url)
    try:
        with engine.translate_errors(), opened.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")
    finally:
        opened.dispose()


def without_password(url: str) -> str:
    """A store's URL as it may be written down."""
    return with_password(url, "")


def with_password(url: str, mine: str) -> str:
    """A URL that was written down, with the password of the URL `mine`, if that has one."""
    if "://" not in url:
        return url
    password = sa.make_url(mine).password if "://" in mine else None
    return sa.make_url(url)._replace(password=password).render_as_string(hide_password=False)


def _successor(connection: sa.Connection) -> Successor | None:
    head, _, action = log.newest(connection)
    if action != "move":
        return None
    row = connection.execute(sa.select(MOVE).where(MOVE.c.id == head)).one_or_none()
    if row is None:
        raise Damaged(f"entry {head} of the log is a move, but where to is gone from the store")
    if row.checksum != log.content({"id": row.id, "model": row.model, "store": row.store}):
        raise Damaged(f"entry {head}, the move, is not what was written: its checksum differs")
    return Successor(row.model, row.store)
