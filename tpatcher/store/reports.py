"""The queue of reports: answers that users say are wrong, until somebody settles them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import sqlalchemy as sa

from tpatcher.data.reports import Correction
from tpatcher.errors import Busy, NotFound
from tpatcher.store.store import Store
from tpatcher.store.tables import REPORT, timestamp


@dataclass(frozen=True)
class Report:
    """A report in the queue: a text whose answer is said to be wrong, maybe with the right one."""

    id: int
    text: str
    said: str | None
    answer: str | None
    note: str | None
    who: str
    at: str


class Reports:
    """The queue: reports stay in it until they are settled."""

    def __init__(self, store: Callable[[], Store], limit: int) -> None:
        self.store, self.limit = store, limit

    def add(
        self,
        text: str,
        who: str,
        said: str | None,
        answer: str | None,
        note: str | None,
        each: int | None = None,
    ) -> int:
        """Put a report in the queue, where `each` caller may have so many; returns its number."""
        told = {"text": text, "said": said, "answer": answer, "note": note}
        new = REPORT.insert().values(**told, who=who, at=timestamp())
        with self.store().writing() as connection:
            room = self._room(connection, who, each)
            if room < 1:
                raise Busy(self._full(who, each), after=3600)
            made = connection.execute(new).inserted_primary_key
        assert made is not None
        return int(made[0])

    def add_many(
        self, corrections: Sequence[Correction], who: str, each: int | None = None
    ) -> tuple[int, str | None]:
        """Put corrections in the queue, as many as there is room for, in one transaction.

        Returns how many those were, and why there were no more. What waits already with the same
        text and answers is not added again, so a file may be imported twice.
        """
        columns = ("text", "said", "answer")
        query = sa.select(*(REPORT.c[c] for c in columns)).where(REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            known = {tuple(row) for row in connection.execute(query)}
            new = {
                key: one for one in corrections if (key := _words(one)) not in known
            }  # the same twice in one file counts once
            room = self._room(connection, who, each)
            rows = [
                {**dict(zip(columns, key, strict=True)), "note": one.note, "who": who}
                for key, one in new.items()
            ]
            rows = [{**row, "at": timestamp()} for row in rows[: max(0, room)]]
            if rows:
                connection.execute(REPORT.insert(), rows)
        return len(rows), self._full(who, each) if len(rows) < len(new) else None

    def _room(self, connection: sa.Connection, who: str, each: int | None) -> int:
        """How many reports a caller may add."""
        waiting = sa.select(sa.func.count()).where(REPORT.c.settled.is_(None))
        room = self.limit - int(connection.execute(waiting).scalar_one())
        if each is None:
            return room
        mine = connection.execute(waiting.where(REPORT.c.who == who)).scalar_one()
        return min(room, each - int(mine))

    def _full(self, who: str, each: int | None) -> str:
        theirs = "" if each is None else f", or {each} of {who!r}"
        return f"{self.limit} reports are waiting already{theirs}"

    def count(self) -> int:
        """How many reports wait."""
        waiting = sa.select(sa.func.count()).where(REPORT.c.settled.is_(None))
        with self.store().reading() as connection:
            return int(connection.execute(waiting).scalar_one())

    def waiting(self, limit: int = 200) -> list[Report]:
        """The oldest reports that nobody has settled."""
        columns = [REPORT.c[field.name] for field in fields(Report)]
        query = sa.select(*columns).where(REPORT.c.settled.is_(None)).order_by(REPORT.c.id)
        with self.store().reading() as connection:
            return [Report(*row) for row in connection.execute(query.limit(limit))]

    def dismiss_all(self, who: str) -> int:
        """Take all reports of one caller out of the queue; returns how many there were."""
        change = REPORT.update().where(REPORT.c.who == who, REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            return connection.execute(change.values(settled="dismissed")).rowcount

    def prune(self, before: str) -> int:
        """Delete settled reports from before a time; returns how many there were."""
        gone = REPORT.delete().where(REPORT.c.settled.is_not(None), REPORT.c.at < before)
        with self.store().writing() as connection:
            return connection.execute(gone).rowcount

    def settle(self, id: int, how: str) -> None:
        """Take a report out of the queue; the row stays."""
        change = REPORT.update().where(REPORT.c.id == id, REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            if connection.execute(change.values(settled=how)).rowcount == 0:
                raise NotFound(f"there is no report {id} waiting")


def _words(one: Correction) -> tuple[str, str | None, str | None]:
    return one.text, one.said, one.answer
