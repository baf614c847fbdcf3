"""The durable log of patches: what was acknowledged is there after a kill, and nothing is lost.

Every change is one more entry with the next number: a patch appended, one removed, or a rollback
to how things were after an earlier entry. Nothing is ever deleted or overwritten, so every state
that was live can be live again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from tpatcher.batches import batches
from tpatcher.errors import Damaged, NotFound, NotStored, StaleHead, WrongBase
from tpatcher.example import Example
from tpatcher.patches import from_bytes, pack
from tpatcher.patches.base import Patch
from tpatcher.patches.pack import Base
from tpatcher.store import engine, location, log
from tpatcher.store.tables import ABOUT, ENTRY, PATCH, timestamp

T = TypeVar("T")

LISTED = sa.select(*(column for column in PATCH.c if column.name != "tensors"))


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
    checks: dict[str, Any]  # the certificate, and what the guard found
    who: str
    at: str


class Store:
    """The patches of one base model, in a SQLite file or a PostgreSQL database.

    The number of an appended patch is the number of its entry in the log.
    """

    def __init__(self, url: str | Path, base: Base, *, new: bool = False) -> None:
        """Open the store at a path or URL, or make it; if it must be `new`, only make it."""
        self.base = base
        self.engine = engine.connect(url)
        self._file: tuple[int, int] | None = None
        try:
            with self.writing() as connection:
                made_for = engine.prepare(connection, base, new)
            self._file = engine.file_of(self.engine)
            if made_for.fingerprint != base.fingerprint:
                raise WrongBase(
                    f"this store holds patches for {made_for.name!r} ({made_for.fingerprint}), "
                    f"but this model is {base.name!r} ({base.fingerprint})"
                )
        except BaseException:
            self.close()
            raise

    @classmethod
    def existing(cls, url: str | Path) -> "Store":
        """A store that is there already, for the base model that it was made for."""
        about = None
        with location.peek(str(url)) as connection:
            if connection is not None and sa.inspect(connection).has_table("about"):
                about = connection.execute(sa.select(ABOUT)).one_or_none()
        if about is None:
            raise NotFound(f"there is no store at {location.without_password(str(url))}")
        return cls(url, Base(about.base_name, about.base))

    def close(self) -> None:
        """Close the connections to the file or the server."""
        self.engine.dispose()

    @property
    def head(self) -> int:
        """The number of the newest entry; 0 if there is none."""
        with self.reading() as connection:
            return log.newest(connection)[0]

    def append(
        self,
        patch: Patch,
        *,
        parent: int | None = None,
        who: str = "",
        settings: Mapping[str, Any] | None = None,
        checks: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> int:
        """Keep a patch and make it live; it is on the disk when this returns its number.

        `parent` is the head that the patch was made for: `StaleHead` if that is no longer it.
        """
        row = {**self._row(patch, settings, checks), "key": key}
        with self.writing() as connection:
            return self.add_entry(connection, "append", parent=parent, who=who, payload=row)

    def append_many(
        self, patches: Iterable[Patch], *, who: str = "", skip_live: bool = False
    ) -> list[int]:
        """Append patches, all or none, or all that are not live yet; returns their numbers."""
        with self.writing() as connection:
            known = {p.id for p in self.patches(log.live(connection))} if skip_live else set()
            rows = (self._row(p) for p in patches if p.id not in known)
            return [self.add_entry(connection, "append", who=who, payload=row) for row in rows]

    def remove(self, id: int, *, parent: int | None = None, who: str = "") -> int:
        """Take one patch out of the live ones; returns the new head."""
        with self.writing() as connection:
            if id not in log.live(connection, damaged={}):  # one that is damaged too can go
                raise NotFound(f"fix {id} is not live, so it cannot be removed")
            return self.add_entry(connection, "remove", target=id, parent=parent, who=who)

    def rollback(self, to: int, *, parent: int | None = None, who: str = "") -> int:
        """Make live what was live after entry `to` (0: nothing); returns the new head."""
        with self.writing() as connection:
            head = log.newest(connection)[0]
            if not 0 <= to <= head:
                raise NotFound(f"there is no entry {to} to roll back to; the log ends at {head}")
            return self.add_entry(connection, "rollback", target=to, parent=parent, who=who)

    def live(self) -> list[Patch]:
        """The patches that are live now, in order, each checked against its checksum."""
        return self.patches(self.live_ids())

    def live_ids(self, at: int | None = None, damaged: dict[int, str] | None = None) -> list[int]:
        """The numbers of the live fixes, now or after an earlier entry.

        With `damaged`, fixes that the log shows to be damaged are noted there; without, it raises.
        """
        with self.reading() as connection:
            return log.live(connection, at, damaged)

    def patches(self, ids: Sequence[int]) -> list[Patch]:
        """These patches; `Damaged` names the first that is not what was appended."""
        with self.reading() as connection:
            found = {r.id: _sound(r) for r in _rows(connection, sa.select(PATCH), ids)}
        for id in ids:
            if id not in found:
                raise Damaged(f"the log has fix {id}, but its tensors are gone from the store")
        return [found[id] for id in ids]

    def readable(self, ids: Sequence[int]) -> tuple[dict[int, Patch], dict[int, str]]:
        """The patches of these numbers that can be read, and why each of the others cannot."""
        found, damaged = _sift(lambda part: list(zip(part, self.patches(part), strict=True)), ids)
        return dict(found), damaged

    def readable_fixes(self, ids: Sequence[int]) -> tuple[list[Fix], dict[int, str]]:
        """The fixes of these numbers that can be listed, and why each of the others cannot."""
        return _sift(self.fixes, sorted(ids))

    def verify(self) -> dict[int, str]:
        """Read all that was ever appended; returns why each fix that is damaged is.

        Raises `Damaged` if an entry other than a fix is damaged: then nothing can be relied on.
        """
        damaged: dict[int, str] = {}
        appended = [e.id for e in self.log(damaged) if e.action == "append"]
        return self.readable(appended)[1] | damaged

    def log(self, damaged: dict[int, str] | None = None) -> list[Entry]:
        """Every entry, oldest first; `damaged` as in `live_ids`."""
        with self.reading() as connection:
            rows = list(log.entries(connection, damaged=damaged))
        return [Entry(r.id, r.action, r.target, r.who, r.at) for r in rows]

    def fixes(self, ids: Iterable[int] | None = None) -> list[Fix]:
        """The fixes of these numbers, or all that ever were, oldest first."""
        query = LISTED.order_by(PATCH.c.id)
        with self.reading() as connection:
            rows = connection.execute(query) if ids is None else _rows(connection, query, ids)
            return [as_fix(row) for row in rows]

    def fix(self, id: int) -> Fix:
        """One fix, whether it is live or not."""
        found = self.fixes([id])
        if not found:
            raise NotFound(f"there is no fix {id}")
        return found[0]

    def made_since(self, who: str, since: str) -> int:
        """How many fixes a caller has made since a time, live or not."""
        query = sa.select(sa.func.count()).where(PATCH.c.who == who, PATCH.c.at >= since)
        with self.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def by_key(self, who: str, key: str) -> Fix | None:
        """The fix that this caller made under this key before, if any."""
        query = LISTED.where(PATCH.c.who == who, PATCH.c.key == key)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return as_fix(row) if row else None

    def export_pack(self, directory: str | Path, text: bool = True) -> None:
        """Write the live patches as a pack."""
        pack.write(directory, self.live(), self.base, text=text)

    def import_pack(self, directory: str | Path, who: str = "") -> list[int]:
        """Append the patches of a pack, all or none; those that are live already are left out."""
        return self.append_many(pack.read(directory, self.base), who=who, skip_live=True)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that no other writer is in: at its end all of it is on the disk."""
        self._check_file()
        with engine.translate_errors(), self.engine.begin() as connection:
            engine.lock(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that waits for no writer."""
        self._check_file()
        with engine.translate_errors(), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def _check_file(self) -> None:
        """Raise `NotStored` if the file was removed or replaced: what is written would be lost."""
        if self._file is not None and engine.file_of(self.engine) != self._file:
            raise NotStored(
                f"the store's file {self.engine.url.database} was removed or replaced since it was "
                "opened, so nothing was changed; put it back and start again"
            )

    def _row(
        self,
        patch: Patch,
        settings: Mapping[str, Any] | None = None,
        checks: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        checks = patch.certificate.to_json() if checks is None else checks
        return {
            "editor": patch.editor,
            "settings": _json(settings or {}),
            "example": _json(patch.example.to_json()) if patch.example else None,
            "tensors": patch.to_bytes(),
            "report": _json(checks),  # the name that the column has in stores
            "base": self.base.fingerprint,
            "key": None,
        }

    def add_entry(
        self,
        connection: sa.Connection,
        action: str,
        *,
        target: int | None = None,
        parent: int | None = None,
        who: str = "",
        payload: Mapping[str, Any] | None = None,
        table: sa.Table = PATCH,
        undoing: bool = False,
    ) -> int:
        """Write the next entry of the log and its payload, a row of `table`; returns its number.

        A store that has moved takes no entry but the one that is `undoing` the move.
        """
        if not undoing:
            location.refuse_if_moved(connection)
        head, checksum, _ = log.newest(connection)
        if parent is not None and parent != head:
            raise StaleHead(f"made for entry {parent}, but the store is at {head} by now")
        number = head + 1
        made = {"id": number, "parent": head, "who": who, "at": timestamp()}
        entry = {**made, "action": action, "target": target}
        inner = ""
        if payload is not None:
            row = {**payload, **(made if table is PATCH else {"id": number})}
            inner = log.content(row)
            connection.execute(table.insert().values(**row, checksum=inner))
        link = log.link(checksum, entry, inner)
        connection.execute(ENTRY.insert().values(**entry, checksum=link))
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_notify("tpatcher", str(number))))
        return number


def _sift(
    read: Callable[[Sequence[int]], list[T]], ids: Sequence[int]
) -> tuple[list[T], dict[int, str]]:
    """What can be read of these numbers, and why each of the others cannot, by halving."""
    if not ids:
        return [], {}
    try:
        return read(ids), {}
    except Damaged as error:
        if len(ids) == 1:
            return [], {ids[0]: str(error)}
    middle = len(ids) // 2
    first, second = (_sift(read, part) for part in (ids[:middle], ids[middle:]))
    return [*first[0], *second[0]], first[1] | second[1]


def _sound(row: sa.Row[Any]) -> Patch:
    values = dict(row._mapping)
    wanted = values.pop("checksum")
    values["tensors"] = bytes(values["tensors"])
    if log.content(values) != wanted:
        raise Damaged(f"fix {row.id} is not what was appended: its checksum differs")
    try:
        return from_bytes(values["tensors"])
    except Damaged as error:
        raise Damaged(f"fix {row.id}: {error}") from error


def as_fix(row: sa.Row[Any]) -> Fix:
    """A row of `LISTED` as a fix."""
    try:
        example = Example.from_json(json.loads(row.example)) if row.example else None
        settings, checks = json.loads(row.settings), json.loads(row.report)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"fix {row.id} cannot be read: {error!r}") from error
    return Fix(row.id, row.editor, settings, example, checks, row.who, row.at)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


def _rows(
    connection: sa.Connection, query: sa.Select[Any], ids: Iterable[int]
) -> Iterator[sa.Row[Any]]:
    """The patches of these numbers, read 500 at a time: a query may not name much more."""
    for part in batches(sorted(ids), 500):
        yield from connection.execute(query.where(PATCH.c.id.in_(part)))
