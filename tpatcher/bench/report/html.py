"""The report: one HTML file, every number linked to the command that made it."""

import re
from collections.abc import Sequence
from itertools import groupby

from tpatcher import __version__
from tpatcher.bench import published
from tpatcher.bench.report import TEMPLATES
from tpatcher.bench.results import ResultRow
from tpatcher.bench.setup import Setup
from tpatcher.bench.table import ResultTable


def page(
    tables: Sequence[ResultTable], title: str, about: Sequence[str], command: str, notes: str = ""
) -> str:
    """The whole page; `notes` are Markdown paragraphs under headings that name tables."""
    made: dict[str, ResultRow] = {}
    for row in (row for table in tables if table.table.columns for row in table.rows):
        if row.results:
            made.setdefault(row.anchor, row)
    return TEMPLATES.get_template("report.html.j2").render(
        title=title,
        about=[*about, *_initial_models(tables)],
        command=command,
        version=__version__,
        css=TEMPLATES.get_template("report.css").render(),
        groups=[(t, list(group)) for t, group in groupby(tables, key=lambda one: one.table)],
        verdicts=[verdict.holds for table in tables for verdict in table.verdicts],
        notes=_by_table(notes),
        made=made,
    )


def _initial_models(tables: Sequence[ResultTable]) -> list[str]:
    """Each model, and how much of D_tr and D_test it has right, beside the paper's."""
    found: dict[Setup, str] = {}
    paper = published.numbers()["text"]
    for table in tables:
        setup, results = table.setup, [r for row in table.rows for r in row.results]
        if results and setup not in found:
            ours, theirs = results[0].scores["f0"], paper["accuracy of f0"][setup.kind]
            found[setup] = (
                f"{setup.title}. The initial model is right on {ours['train']['right']:.1%} of "
                f"D_tr and {ours['test']['right']:.1%} of D_test (the paper's "
                f"{paper['model'][setup.kind]}: {theirs['D_tr']:.1%}, {theirs['D_test']:.1%})."
            )
    return list(found.values())


def _by_table(notes: str) -> dict[str, str]:
    """The paragraphs of notes by the "## table1" that they stand under."""
    parts = re.split(r"^##\s+(\S+)\s*$", notes, flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
