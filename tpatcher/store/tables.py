"""The tables of a store."""

from datetime import UTC, datetime

import sqlalchemy as sa

METADATA = sa.MetaData()
ABOUT = sa.Table(
    "about", METADATA,
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("base_name", sa.Text, nullable=False),
    sa.Column("base", sa.Text, nullable=False),
)  # fmt: skip
ENTRY = sa.Table(
    "entry", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.Integer, nullable=False, unique=True),  # so the log cannot fork
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("target", sa.Integer),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
)  # fmt: skip
PATCH = sa.Table(
    "patch", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.Integer, nullable=False),
    sa.Column("editor", sa.Text, nullable=False),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("example", sa.Text),
    sa.Column("tensors", sa.LargeBinary, nullable=False),
    sa.Column("report", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("base", sa.Text, nullable=False),
    sa.Column("key", sa.Text),  # an Idempotency-Key, which is its caller's own
    sa.Column("checksum", sa.Text, nullable=False),
    sa.UniqueConstraint("who", "key"),
)  # fmt: skip
REPORT = sa.Table(
    "report", METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("said", sa.Text),
    sa.Column("answer", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("settled", sa.Text),  # "fixed by 12" or "dismissed"
)  # fmt: skip
EVENT = sa.Table(
    "event", METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)  # fmt: skip

MOVE = sa.Table(
    "move", METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # its entry's
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("store", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
)  # fmt: skip
TAUGHT = sa.Table(
    "taught", METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("example", sa.Text, nullable=False),
)  # fmt: skip


def timestamp(precision: str = "milliseconds") -> str:
    """The time in UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec=precision)
