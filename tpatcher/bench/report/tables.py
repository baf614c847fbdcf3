"""Tables for the screen, for Markdown, LaTeX and CSV: ours beside the paper's."""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from rich.table import Table

from tpatcher.bench.report import TEMPLATES
from tpatcher.bench.table import ResultTable


def screen(result: ResultTable) -> Table:
    """With Rich: ours, and the paper's dimmed below it."""
    out = Table(title=f"{result.table.title}\n{result.setup.title}", title_justify="left")
    out.add_column("ours\n[dim]paper[/]", overflow="fold")  # in a narrow terminal, never a number
    rows = [result.cells(row) for row in result.rows]
    for i, head in enumerate(result.heads):
        numbers = [len(number) for cells in rows for number in cells[i]]
        width = max(numbers + [len(word) for word in head.split()], default=0)
        out.add_column(head, justify="right", min_width=width)
    for row, cells in zip(result.rows, rows, strict=True):
        few = f" [dim]{len(row.results)}/{row.expected}[/]" if row.incomplete else ""
        out.add_row(row.label + few, *(f"{ours}\n[dim]{paper}[/]" for ours, paper in cells))
    return out


def as_text(results: Sequence[ResultTable], kind: Literal["md", "tex"]) -> str:
    """Markdown or LaTeX: a table on each of its setups."""
    template = TEMPLATES.get_template(f"table.{kind}.j2")
    return template.render(table=results[0].table, results=results)


def comma_separated(results: Sequence[ResultTable]) -> str:
    """One number a line, with the jobs that it comes from."""
    file = io.StringIO()
    out = csv.writer(file)
    out.writerow(["table", "task", "row", "metric", "ours", "deviation", "paper", "jobs"])
    for result in results:
        for row in result.rows:
            keys = " ".join(r.job.key for r in row.results)
            for column in result.columns:
                ours, paper = result.cell(row, column)
                deviation = row.numbers.get(column, (None, None))[1]
                names = (result.table.name, result.setup.data, row.row.name, column)
                out.writerow([*names, ours.value, deviation, paper.value, keys])
    return file.getvalue()
