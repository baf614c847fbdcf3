"""The queue of reports and the audit log, kept beside the chain of patches."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import Busy, NotFound, TPatcherError
from tpatcher.schema import EVENT, REPORT
from tpatcher.store import Store

LOG = logging.getLogger("tpatcher.audit")


@dataclass(frozen=True)
class Report:
    """A report in the queue: an answer is said to be wrong, and perhaps what the right one is."""

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
        self, text: str, who: str, said: str | None, answer: str | None, note: str | None
    ) -> int:
        """Put a report in the queue; returns its number."""
        row = {"text": text, "said": said, "answer": answer, "note": note, "who": who, "at": now()}
        waiting = sa.select(sa.func.count()).where(REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            if connection.execute(waiting).scalar_one() >= self.limit:
                raise Busy(f"{self.limit} reports are waiting already", after=3600)
            made = connection.execute(REPORT.insert().values(**row)).inserted_primary_key
        assert made is not None
        return int(made[0])

    def waiting(self, limit: int = 200) -> list[Report]:
        """The oldest reports that nobody has settled."""
        columns = [c for c in REPORT.c if c.name != "settled"]
        query = sa.select(*columns).where(REPORT.c.settled.is_(None)).order_by(REPORT.c.id)
        with self.store().reading() as connection:
            return [Report(*row) for row in connection.execute(query.limit(limit))]

    def settle(self, id: int, how: str) -> None:
        """Take a report out of the queue; the row stays."""
        change = REPORT.update().where(REPORT.c.id == id, REPORT.c.settled.is_(None))
        with self.store().writing() as connection:
            if connection.execute(change.values(settled=how)).rowcount == 0:
                raise NotFound(f"there is no report {id} waiting")


class Audit:
    """Who did what, in the store and on the logger `tpatcher.audit`."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self.store = store

    def note(self, who: str, what: str, **detail: Any) -> None:
        """One line more. An unreachable store is no reason to fail what was done."""
        # JSON escapes line breaks and control characters: a client cannot forge a line
        line = json.dumps(detail)
        LOG.info("%s", json.dumps({"at": now(), "who": who, "what": what, **detail}))
        try:
            with self.store().writing() as connection:
                connection.execute(EVENT.insert().values(at=now(), who=who, what=what, detail=line))
        except TPatcherError as error:
            LOG.warning("%s", json.dumps({"not kept": str(error)}))

    def latest(self, n: int = 500) -> list[dict[str, Any]]:
        """The newest events, oldest of them first."""
        query = sa.select(EVENT).order_by(EVENT.c.id.desc()).limit(n)
        with self.store().reading() as connection:
            rows = connection.execute(query).all()
        return [
            {"at": r.at, "who": r.who, "what": r.what, **json.loads(r.detail)} for r in rows[::-1]
        ]


def now() -> str:
    """The time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
