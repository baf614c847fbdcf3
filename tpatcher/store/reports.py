"""The queue of reports: answers that users say are wrong, until somebody settles them."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import sqlalchemy as sa

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
        waiting = sa.select(sa.func.count()).where(REPORT.c.settled.is_(None))
        new = REPORT.insert().values(**told, who=who, at=timestamp())
        with self.store().writing() as connection:
            if connection.execute(waiting).scalar_one() >= self.limit:
                raise Busy(f"{self.limit} reports are waiting already", after=3600)
            mine = waiting.where(REPORT.c.who == who)
            if each is not None and connection.execute(mine).scalar_one() >= each:
                raise Busy(f"{each} reports of {who!r} are waiting already", after=3600)
            made = connection.execute(new).inserted_primary_key
        assert made is not None
        return int(made[0])

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

    def settle(self, id: int, how: str) -> None:
        """Take a report out of the queue; the row stays."""
        change = REPORT.update().where(REPORT.c.id == id, REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            if connection.execute(change.values(settled=how)).rowcount == 0:
                raise NotFound(f"there is no report {id} waiting")
