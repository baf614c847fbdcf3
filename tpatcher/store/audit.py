"""The audit log: who did what."""

import json
import logging
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from tpatcher.errors import TPatcherError
from tpatcher.store.store import Store
from tpatcher.store.tables import EVENT, timestamp

LOG = logging.getLogger("tpatcher.audit")


class Audit:
    """Who did what, in the store and on the logger `tpatcher.audit`."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self.store = store

    def note(self, who: str, what: str, **detail: Any) -> None:
        """Add an event. If the store cannot be reached the event is only logged, with a warning."""
        # JSON escapes line breaks and control characters: a client cannot forge a line
        line = json.dumps(detail)
        at = timestamp()
        LOG.info("%s", json.dumps({"at": at, "who": who, "what": what, **detail}))
        try:
            with self.store().writing() as connection:
                connection.execute(EVENT.insert().values(at=at, who=who, what=what, detail=line))
        except TPatcherError as error:
            LOG.warning("%s", json.dumps({"not kept": str(error)}))

    def prune(self, before: str) -> int:
        """Delete events from before a time; returns how many there were."""
        with self.store().writing() as connection:
            return connection.execute(EVENT.delete().where(EVENT.c.at < before)).rowcount

    def latest(self, n: int = 500) -> list[dict[str, Any]]:
        """The newest events, oldest of them first."""
        query = sa.select(EVENT).order_by(EVENT.c.id.desc()).limit(n)
        with self.store().reading() as connection:
            rows = connection.execute(query).all()
        return [
            {"at": r.at, "who": r.who, "what": r.what, **json.loads(r.detail)} for r in rows[::-1]
        ]
