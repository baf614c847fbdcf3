"""The report: one HTML file, every number linked to the command that made it."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from tpatcher import __version__
from tpatcher.bench import published
from tpatcher.bench.report import TEMPLATES
from tpatcher.bench.results import Result, ResultRow
from tpatcher.bench.setup import Setup
from tpatcher.bench.table import ResultTable
from tpatcher.bench.tally import tally


def page(
    tables: Sequence[ResultTable],
    title: str,
    about: Sequence[str],
    command: str,
    notes: str = "",
    failed: Mapping[str, str] | None = None,
) -> str:
    """The whole page; `notes` are Markdown paragraphs under headings that name tables.

    `failed` are the jobs that could not be run, and why.
    """
    made: dict[str, ResultRow] = {}
    initial: dict[Setup, Result] = {}
    for table in tables:
        for row in table.with_results:
            initial.setdefault(table.setup, row.results[0])
            if table.table.columns:
                made.setdefault(row.anchor, row)
    return TEMPLATES.get_template("report.html.j2").render(
        title=title,
        about=about,
        paper=published.numbers()["text"],
        initial=initial,
        command=command,
        version=__version__,
        css=TEMPLATES.get_template("report.css").render(),
        groups=[(t, list(group)) for t, group in groupby(tables, key=lambda one: one.table)],
        tallies=tally(tables),
        failed=failed or {},
        notes=_by_table(notes),
        made=made,
    )


def _by_table(notes: str) -> dict[str, str]:
    """The paragraphs of notes by the "## table1" that they stand under."""
    parts = re.split(r"^##\s+(\S+)\s*$", notes, flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
