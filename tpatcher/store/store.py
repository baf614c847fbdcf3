"""The durable chain of patches: what was acknowledged is there after a kill, and nothing is lost.

Every change is one more entry with the next number: a patch appended, one removed, or a rollback
to how things were after an earlier entry. Nothing is ever deleted or overwritten, so every state
that was live can be live again. The last of all may be that the chain has moved to another base.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import Damaged, NotFound, StaleHead, StoreMoved, WrongBase
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches import from_bytes, pack
from tpatcher.patches.base import Patch
from tpatcher.store import engine
from tpatcher.store import log as chain
from tpatcher.store.log import Successor
from tpatcher.store.tables import ENTRY, MOVE, PATCH, TAUGHT


@dataclass(frozen=True)
class Entry:
    """One line of the log: `target` is the fix removed, or the entry rolled back to."""

    id: int
    action: str  # append, remove, rollback, move
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
        self.engine = engine.connect(url)
        try:
            with self.writing() as connection:
                name, base = engine.migrate(connection, self.base.name, self.base.fingerprint)
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
            return chain.newest(connection)[0]

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

        `parent` is the head that the patch was made for: `StaleHead` if that is no longer it.
        """
        row = self._row(patch, example, settings or {}, patch.report if report is None else report)
        with self.writing() as connection:
            return self._add(connection, "append", None, parent, who, {**row, "key": key})

    def remove(self, id: int, *, parent: int | None = None, who: str = "") -> int:
        """Take one patch out of the live ones; returns the new head."""
        with self.writing() as connection:
            if id not in chain.live(connection):
                raise NotFound(f"fix {id} is not live, so it cannot be removed")
            return self._add(connection, "remove", id, parent, who)

    def rollback(self, to: int, *, parent: int | None = None, who: str = "") -> int:
        """Make live what was live after entry `to` (0: nothing); returns the new head."""
        with self.writing() as connection:
            head = chain.newest(connection)[0]
            if not 0 <= to <= head:
                raise NotFound(f"there is no entry {to} to roll back to; the log ends at {head}")
            return self._add(connection, "rollback", to, parent, who)

    def move(self, to: Successor, *, parent: int, who: str = "") -> int:
        """Say where the chain goes on; from then on this store takes no change but a rollback
        of that very entry."""
        row = {"model": to.model, "store": to.store}
        with self.writing() as connection:
            return self._add(connection, "move", None, parent, who, row, MOVE)

    def successor(self) -> Successor | None:
        """Where the chain goes on, if it has moved."""
        with self.reading() as connection:
            return chain.successor(connection)

    def undo_move(self, *, who: str = "") -> int:
        """Take the move back: this store goes on as it was before it."""
        with self.writing() as connection:
            if chain.successor(connection) is None:
                raise NotFound("this store has not moved, so there is nothing to take back")
            to = chain.newest(connection)[0] - 1
            return self._add(connection, "rollback", to, None, who, lift=True)

    def record_learned(self, examples: Iterable[Example]) -> None:
        """Keep the fixes that are in the base itself by now: later ones must leave them alone."""
        rows = [{"example": _json(e.to_json())} for e in examples]
        with self.writing() as connection:
            if rows:
                connection.execute(TAUGHT.insert(), rows)

    def learned(self) -> list[Example]:
        """The fixes that the base was taught before this chain began."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(TAUGHT.c.example).order_by(TAUGHT.c.id)).scalars()
            return [Example.from_json(json.loads(row)) for row in rows]

    def live(self) -> list[Patch]:
        """The patches to wear now, in order, each checked against its checksum."""
        return self.patches(self.live_ids())

    def live_ids(self, at: int | None = None) -> list[int]:
        """The numbers of the live fixes, now or after an earlier entry."""
        with self.reading() as connection:
            return chain.live(connection, at)

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
            rows = list(chain.entries(connection))
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

    def by_key(self, who: str, key: str) -> Fix | None:
        """The fix that this caller made under this key before, if any."""
        columns = [c for c in PATCH.c if c.name != "tensors"]
        query = sa.select(*columns).where(PATCH.c.who == who, PATCH.c.key == key)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return _fix(row) if row else None

    def export_pack(self, directory: str | Path, text: bool = True) -> None:
        """Write the live patches as a pack."""
        pack.write(directory, self.live(), self.base, text=text)

    def import_pack(self, directory: str | Path, who: str = "") -> list[int]:
        """Append the patches of a pack, all or none; those that are live already are left out."""
        patches = pack.read(directory, self.base)
        with self.writing() as connection:
            live = chain.live(connection)
            known = {p.id for p in self.patches(live)} if live else set()
            rows = [self._row(p, None, {}, p.report) for p in patches if p.id not in known]
            return [self._add(connection, "append", None, None, who, row) for row in rows]

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that no other writer is in: at its end all of it is on the disk."""
        with engine.translate_errors(), self.engine.begin() as connection:
            engine.lock(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that waits for no writer."""
        with engine.translate_errors(), self.engine.connect() as connection:
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
        brought: dict[str, Any] | None = None,
        table: sa.Table = PATCH,
        lift: bool = False,
    ) -> int:
        head, checksum, last = chain.newest(connection)
        if last == "move" and not lift and (to := chain.successor(connection)):
            raise StoreMoved(
                f"this store has moved: its fixes are in {to.model!r}, kept on in {to.store!r}"
            )
        if parent is not None and parent != head:
            raise StaleHead(f"made for entry {parent}, but the store is at {head} by now")
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
        if brought is not None:
            row = {**brought, "id": head + 1}
            if table is PATCH:
                row |= {"parent": head, "who": who, "at": now}
            inner = chain.content(row)
            connection.execute(table.insert().values(**row, checksum=inner))
        link = chain.link(checksum, entry, inner)
        connection.execute(ENTRY.insert().values(**entry, checksum=link))
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_notify("tpatcher", str(head + 1))))
        return head + 1


def _sound(row: sa.Row[Any]) -> Patch:
    values = dict(row._mapping)
    wanted = values.pop("checksum")
    values["tensors"] = bytes(values["tensors"])
    if chain.content(values) != wanted:
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


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """A few hundred at a time: databases limit how many values one query may name."""
    for start in range(0, len(ids), 500):
        yield ids[start : start + 500]
