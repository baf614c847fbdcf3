"""The durable chain of patches: what was acknowledged is there after a kill, and nothing is lost.

Every change is one more entry with the next number: a patch appended, one removed, or a rollback
to how things were after an earlier entry. Nothing is ever deleted or overwritten, so every state
that was live can be live again. An entry's checksum covers the one before it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tpatcher import pack, schema
from tpatcher.errors import Damaged, HeadMoved, NotFound, WrongBase
from tpatcher.example import Example
from tpatcher.models import Model
from tpatcher.patch import Patch, from_bytes
from tpatcher.schema import ENTRY, PATCH


@dataclass(frozen=True)
class Entry:
    """One line of the log: `target` is the fix removed, or the entry rolled back to."""

    id: int
    action: str  # append, remove, rollback
    target: int | None
    who: str
    at: str


@dataclass(frozen=True)
class Fix:
    """A patch as it is listed: everything but its tensors."""

    id: int
    editor: str
    settings: dict[str, Any]
    example: Example | None
    report: dict[str, Any]
    who: str
    at: str


class Store:
    """The chain of one base model, in a SQLite file or a PostgreSQL database.

    The number of an appended patch is the number of its entry in the log.
    """

    def __init__(self, url: str | Path, model: Model) -> None:
        self.base = model.base
        self.engine = schema.connect(url)
        try:
            with self.writing() as connection:
                name, base = schema.migrate(connection, self.base.name, self.base.fingerprint)
            if base != self.base.fingerprint:
                raise WrongBase(
                    f"this store holds patches for {name!r} ({base}), but this model is "
                    f"{self.base.name!r} ({self.base.fingerprint})"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file or the server."""
        self.engine.dispose()

    @property
    def head(self) -> int:
        """The number of the newest entry; 0 if there is none."""
        with self.reading() as connection:
            return _newest(connection)[0]

    def append(
        self,
        patch: Patch,
        example: Example | None = None,
        *,
        parent: int | None = None,
        who: str = "",
        settings: Mapping[str, Any] | None = None,
        report: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> int:
        """Keep a patch and make it live; it is on the disk when this returns its number.

        `parent` is the head that the patch was made for: `HeadMoved` if that is no longer it.
        """
        row = self._row(patch, example, settings or {}, patch.report if report is None else report)
        with self.writing() as connection:
            return self._add(connection, "append", None, parent, who, {**row, "key": key})

    def remove(self, id: int, *, parent: int | None = None, who: str = "") -> int:
        """Take one patch out of the live ones; returns the new head."""
        with self.writing() as connection:
            if id not in _live(connection):
                raise NotFound(f"fix {id} is not live, so it cannot be removed")
            return self._add(connection, "remove", id, parent, who)

    def rollback(self, to: int, *, parent: int | None = None, who: str = "") -> int:
        """Make live what was live after entry `to` (0: nothing); returns the new head."""
        with self.writing() as connection:
            head = _newest(connection)[0]
            if not 0 <= to <= head:
                raise NotFound(f"there is no entry {to} to roll back to; the log ends at {head}")
            return self._add(connection, "rollback", to, parent, who)

    def live(self) -> list[Patch]:
        """The patches to wear now, in order, each checked against its checksum."""
        return self.patches(self.live_ids())

    def live_ids(self, at: int | None = None) -> list[int]:
        """The numbers of the live fixes, now or after an earlier entry."""
        with self.reading() as connection:
            return _live(connection, at)

    def patches(self, ids: Sequence[int]) -> list[Patch]:
        """These patches; `Damaged` names the first that is not what was appended."""
        found: dict[int, Patch] = {}
        with self.reading() as connection:
            for part in _parts(ids):
                for row in connection.execute(sa.select(PATCH).where(PATCH.c.id.in_(part))):
                    found[row.id] = _sound(row)
        for id in ids:
            if id not in found:
                raise Damaged(f"the log has fix {id}, but its tensors are gone from the store")
        return [found[id] for id in ids]

    def log(self) -> list[Entry]:
        """All that ever happened, oldest first."""
        with self.reading() as connection:
            rows = list(_entries(connection))
        return [Entry(r.id, r.action, r.target, r.who, r.at) for r in rows]

    def fixes(self, ids: Iterable[int] | None = None) -> list[Fix]:
        """The fixes of these numbers, or all that ever were, oldest first."""
        columns = [c for c in PATCH.c if c.name != "tensors"]
        query = sa.select(*columns).order_by(PATCH.c.id)
        with self.reading() as connection:
            if ids is None:
                return [_fix(row) for row in connection.execute(query)]
            parts = _parts(sorted(ids))
            return [
                _fix(r) for p in parts for r in connection.execute(query.where(PATCH.c.id.in_(p)))
            ]

    def fix(self, id: int) -> Fix:
        """One fix, whether it is live or not."""
        found = self.fixes([id])
        if not found:
            raise NotFound(f"there is no fix {id}")
        return found[0]

    def keyed(self, who: str, key: str) -> Fix | None:
        """The fix that this caller made under this key before, if any."""
        columns = [c for c in PATCH.c if c.name != "tensors"]
        query = sa.select(*columns).where(PATCH.c.who == who, PATCH.c.key == key)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return _fix(row) if row else None

    def export(self, directory: str | Path, text: bool = True) -> None:
        """Write the live patches as a pack."""
        pack.write(directory, self.live(), self.base, text=text)

    def adopt(self, directory: str | Path, who: str = "") -> list[int]:
        """Append the patches of a pack, all or none; those that are live already are left out."""
        patches = pack.read(directory, self.base)
        with self.writing() as connection:
            live = _live(connection)
            known = {p.id for p in self.patches(live)} if live else set()
            rows = [self._row(p, None, {}, p.report) for p in patches if p.id not in known]
            return [self._add(connection, "append", None, None, who, row) for row in rows]

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that no other writer is in: at its end all of it is on the disk."""
        with schema.told(), self.engine.begin() as connection:
            schema.lock(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that waits for no writer."""
        with schema.told(), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def _row(
        self,
        patch: Patch,
        example: Example | None,
        settings: Mapping[str, Any],
        report: Mapping[str, Any],
    ) -> dict[str, Any]:
        example = example or patch.example
        return {
            "editor": patch.editor,
            "settings": _json(settings),
            "example": _json(example.to_json()) if example else None,
            "tensors": patch.to_bytes(),
            "report": _json(report),
            "base": self.base.fingerprint,
            "key": None,
        }

    def _add(
        self,
        connection: sa.Connection,
        action: str,
        target: int | None,
        parent: int | None,
        who: str,
        patch: dict[str, Any] | None = None,
    ) -> int:
        head, checksum = _newest(connection)
        if parent is not None and parent != head:
            raise HeadMoved(f"made for entry {parent}, but the store is at {head} by now")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {
            "id": head + 1,
            "parent": head,
            "action": action,
            "target": target,
            "who": who,
            "at": now,
        }
        inner = ""
        if patch is not None:
            row = {**patch, "id": head + 1, "parent": head, "who": who, "at": now}
            inner = _checksum(row)
            connection.execute(PATCH.insert().values(**row, checksum=inner))
        link = _link(checksum, entry, inner)
        connection.execute(ENTRY.insert().values(**entry, checksum=link))
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_notify("tpatcher", str(head + 1))))
        return head + 1


def _newest(connection: sa.Connection) -> tuple[int, str]:
    query = sa.select(ENTRY.c.id, ENTRY.c.checksum).order_by(ENTRY.c.id.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return (row.id, row.checksum) if row else (0, "")


def _entries(connection: sa.Connection, at: int | None = None) -> Iterator[sa.Row[Any]]:
    """The entries, oldest first, each checked against the one before it."""
    query = (
        sa.select(ENTRY, PATCH.c.checksum.label("inner"))
        .outerjoin(PATCH, PATCH.c.id == ENTRY.c.id)
        .order_by(ENTRY.c.id)
    )
    before, checksum = 0, ""
    for row in connection.execute(query if at is None else query.where(ENTRY.c.id <= at)):
        entry = {k: getattr(row, k) for k in ("id", "parent", "action", "target", "who", "at")}
        if (row.id, row.parent) != (before + 1, before):
            raise Damaged(f"the log has entry {row.id} after {before}: one is gone")
        if row.checksum != _link(checksum, entry, row.inner or ""):
            raise Damaged(
                f"entry {row.id} of the log is not what was written: its checksum differs"
            )
        before, checksum = row.id, row.checksum
        yield row


def _live(connection: sa.Connection, at: int | None = None) -> list[int]:
    """Read backwards: what was removed later is out, and a rollback leaps over what it undid."""
    rows = {row.id: row for row in _entries(connection, at)}
    here, removed, live = max(rows, default=0), set(), []
    while here:
        row = rows[here]
        if row.action == "rollback":
            here = row.target
            continue
        if row.action == "remove":
            removed.add(row.target)
        elif here not in removed:
            live.append(here)
        here = row.parent
    return live[::-1]


def _sound(row: sa.Row[Any]) -> Patch:
    values = dict(row._mapping)
    wanted = values.pop("checksum")
    values["tensors"] = bytes(values["tensors"])
    if _checksum(values) != wanted:
        raise Damaged(f"fix {row.id} is not what was appended: its checksum differs")
    try:
        return from_bytes(values["tensors"])
    except Damaged as error:
        raise Damaged(f"fix {row.id}: {error}") from error


def _fix(row: sa.Row[Any]) -> Fix:
    try:
        example = Example.from_json(json.loads(row.example)) if row.example else None
        settings, report = json.loads(row.settings), json.loads(row.report)
    except ValueError as error:
        raise Damaged(f"fix {row.id} cannot be read: {error}") from error
    return Fix(row.id, row.editor, settings, example, report, row.who, row.at)


def _checksum(row: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(row["tensors"])
    rest = {k: v for k, v in row.items() if k not in ("tensors", "checksum")}
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()


def _link(before: str, entry: Mapping[str, Any], inner: str) -> str:
    line = json.dumps([before, inner, dict(entry)], sort_keys=True)
    return hashlib.sha256(line.encode()).hexdigest()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """A few hundred at a time: databases limit how many values one query may name."""
    for start in range(0, len(ids), 500):
        yield ids[start : start + 500]
