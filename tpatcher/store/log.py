"""The log of a store: its entries, each checked against the one before it, and what is live."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import Damaged
from tpatcher.store.tables import ENTRY, MOVE, PATCH


def newest(connection: sa.Connection) -> tuple[int, str, str]:
    """Number, checksum and action of the newest entry; 0 and nothing if there is none."""
    columns = (ENTRY.c.id, ENTRY.c.checksum, ENTRY.c.action)
    row = connection.execute(sa.select(*columns).order_by(ENTRY.c.id.desc()).limit(1)).one_or_none()
    return (row.id, row.checksum, row.action) if row else (0, "", "")


def entries(
    connection: sa.Connection, at: int | None = None, damaged: dict[int, str] | None = None
) -> Iterator[sa.Row[Any]]:
    """The entries, oldest first, each checked against the one before it.

    With `damaged`, a fix that is not what was appended is noted there with the reason, and the
    others go on; without, it raises `Damaged`, as any other entry always does.
    """
    query = (
        sa.select(ENTRY, sa.func.coalesce(PATCH.c.checksum, MOVE.c.checksum).label("inner"))
        .outerjoin(PATCH, PATCH.c.id == ENTRY.c.id)
        .outerjoin(MOVE, MOVE.c.id == ENTRY.c.id)
        .order_by(ENTRY.c.id)
    )
    before, checksum = 0, ""
    for row in connection.execute(query if at is None else query.where(ENTRY.c.id <= at)):
        entry = {k: getattr(row, k) for k in ("id", "parent", "action", "target", "who", "at")}
        if (row.id, row.parent) != (before + 1, before):
            raise Damaged(f"the log has entry {row.id} after {before}: an entry is missing")
        if row.checksum != link(checksum, entry, row.inner or ""):
            why = f"entry {row.id} of the log is not what was written: its checksum differs"
            if damaged is None or row.action != "append":
                raise Damaged(why)
            damaged[row.id] = why
        before, checksum = row.id, row.checksum
        yield row


def live(
    connection: sa.Connection, at: int | None = None, damaged: dict[int, str] | None = None
) -> list[int]:
    """The numbers of the live fixes, oldest first, now or after entry `at`.

    The log is read backwards: a removal leaves its target out, a rollback leaps to its target.
    `damaged` is as in `entries`.
    """
    rows = {row.id: row for row in entries(connection, at, damaged)}
    here, removed, found = max(rows, default=0), set(), []
    while here:
        row = rows[here]
        if row.action == "rollback":
            here = row.target
            continue
        if row.action == "remove":
            removed.add(row.target)
        elif row.action == "append" and here not in removed:
            found.append(here)
        here = row.parent
    return found[::-1]


def content(row: Mapping[str, Any]) -> str:
    """The checksum of an entry's payload: a patch with its tensors, or a move."""
    digest = hashlib.sha256(row.get("tensors", b""))
    rest = {k: v for k, v in row.items() if k not in ("tensors", "checksum")}
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()


def link(before: str, entry: Mapping[str, Any], inner: str) -> str:
    """The checksum of an entry, its content and the entry before it."""
    line = json.dumps([before, inner, dict(entry)], sort_keys=True)
    return hashlib.sha256(line.encode()).hexdigest()
