"""Where a store is: the one that was named, or the one that its log has moved to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tpatcher.errors import Damaged
from tpatcher.store import engine
from tpatcher.store import log as chain

MAX_MOVES = 1000  # moves that are followed: more must be a circle


def follow(model: str, url: str | Path) -> tuple[str, str]:
    """The base and the store that a store's chain has come to; these very ones if it stayed."""
    place = str(url)
    for _ in range(MAX_MOVES):
        with peek(place) as connection:
            if connection is None or not sa.inspect(connection).has_table("move"):
                return model, place
            to = chain.successor(connection)
        if to is None:
            return model, place
        model, place = to.model, with_password(to.store, place)
    raise Damaged(f"the store {without_password(place)} moves in a circle; take a move back")


@contextmanager
def peek(url: str) -> Iterator[sa.Connection | None]:
    """A connection to whatever is there, or None if it is a file that is not; none is made."""
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
    """A store's place without its password, because it is written down."""
    return _with(url, None)


def with_password(url: str, mine: str) -> str:
    """A place that was written down, with the password that is known here."""
    return _with(url, sa.make_url(mine).password if "://" in mine else None)


def _with(url: str, password: str | None) -> str:
    if "://" not in url:
        return url
    u = sa.make_url(url)
    made = sa.URL.create(u.drivername, u.username, password, u.host, u.port, u.database, u.query)
    return made.render_as_string(hide_password=False)
