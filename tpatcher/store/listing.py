"""Fixes in pages, newest first: what a list of 10,000 is looked through with."""

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from tpatcher.errors import Damaged
from tpatcher.store.store import LISTED, Fix, Store, as_fix
from tpatcher.store.tables import PATCH

BLOCK = 200  # rows that are read at a time


@dataclass(frozen=True)
class Page:
    """Some fixes, newest first, and where the next page begins."""

    fixes: list[Fix]
    total: int  # fixes that ever were, whether they match or not
    next: int | None  # give this as `before` to go on; None: these were the last


def page(
    store: Store,
    limit: int,
    *,
    before: int | None = None,
    search: str = "",
    among: Container[int] | None = None,
) -> Page:
    """The newest fixes that hold the searched words, of those `among`, older than `before`.

    What cannot be read is passed over: `Store.verify` names it.
    """
    found: list[Fix] = []
    with store.reading() as connection:
        total = int(connection.execute(sa.select(sa.func.count()).select_from(PATCH)).scalar_one())
        for fix in _newest(connection, before, search.strip()):
            if among is not None and fix.id not in among:
                continue
            if len(found) == limit:
                return Page(found, total, found[-1].id)
            found.append(fix)
    return Page(found, total, None)


def _newest(connection: sa.Connection, before: int | None, search: str) -> Iterator[Fix]:
    query = LISTED.order_by(PATCH.c.id.desc()).limit(BLOCK)
    # as JSON writes it; whether it is in a text, and not in a name, is seen below; and SQLite folds
    # the case of ASCII letters only
    if search and search.isascii():
        inside = json.dumps(search.lower(), ensure_ascii=False)[1:-1]
        folded = sa.func.lower(PATCH.c.example)
        query = query.where(folded.contains(inside, autoescape=True))
    while True:
        part = query if before is None else query.where(PATCH.c.id < before)
        rows = connection.execute(part).all()
        for row in rows:
            try:
                fix = as_fix(row)
            except Damaged:
                continue
            if not search or _holds(fix, search):
                yield fix
        if len(rows) < BLOCK:
            return
        before = rows[-1].id


def _holds(fix: Fix, search: str) -> bool:
    """Whether a text of a fix has the words."""
    if fix.example is None:
        return False
    texts = (fix.example.text, fix.example.answer, *fix.example.rephrasings)
    return any(search.lower() in str(text).lower() for text in texts)
