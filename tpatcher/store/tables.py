"""The tables of a store."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

METADATA = sa.MetaData()


def _texts(*names: str) -> list[sa.Column[str]]:
    """Columns of texts, none of which may be missing."""
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


ABOUT = sa.Table(
    "about",
    METADATA,
    sa.Column("version", sa.Integer, nullable=False),
    *_texts("base_name", "base"),
)
ENTRY = sa.Table(
    "entry", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.Integer, nullable=False, unique=True),  # so the log cannot fork
    sa.Column("target", sa.Integer),
    *_texts("action", "who", "at", "checksum"),
)  # fmt: skip
PATCH = sa.Table(
    "patch", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.Integer, nullable=False),
    sa.Column("example", sa.Text),
    sa.Column("tensors", sa.LargeBinary, nullable=False),
    sa.Column("key", sa.Text),  # an Idempotency-Key, which is its caller's own
    *_texts("editor", "settings", "report", "who", "at", "base", "checksum"),
    sa.UniqueConstraint("who", "key"),
)  # fmt: skip
REPORT = sa.Table(
    "report", METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("said", sa.Text),
    sa.Column("answer", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("settled", sa.Text, index=True),  # "fixed by 12" or "dismissed"
    *_texts("text", "who", "at"),
)  # fmt: skip
EVENT = sa.Table(
    "event", METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    *_texts("at", "who", "what", "detail"),
)  # fmt: skip
MOVE = sa.Table(
    "move", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # its entry's
    *_texts("model", "store", "checksum"),
)  # fmt: skip
TAUGHT = sa.Table(
    "taught", METADATA, sa.Column("id", sa.Integer, primary_key=True), *_texts("example")
)


def timestamp(hours_ago: float = 0) -> str:
    """The time in UTC, now or some hours ago, as the store writes it."""
    then = datetime.now(UTC) - timedelta(hours=hours_ago)
    return then.isoformat(timespec="milliseconds")
