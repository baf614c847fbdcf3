"""Tables for the screen, for Markdown, LaTeX and CSV: ours beside the paper's."""

import csv
import io
from collections.abc import Sequence

from rich.table import Table

from tpatcher.bench.table import ResultTable


def screen(result: ResultTable) -> Table:
    """With Rich: ours, and the paper's dimmed below it."""
    out = Table(title=f"{result.table.title}\n{result.setup.title}", title_justify="left")
    out.add_column("ours\n[dim]paper[/]", no_wrap=True)
    for column in result.table.columns:
        out.add_column(column.head, justify="right", no_wrap=True)
    for row in result.rows:
        few = f" [dim]{len(row.results)}/{row.expected}[/]" if row.incomplete else ""
        cells = [f"{ours}\n[dim]{paper}[/]" for ours, paper in result.cells(row)]
        out.add_row(row.label + few, *cells)
    return out


def markdown(results: Sequence[ResultTable]) -> str:
    """Every cell is "ours (paper)"."""
    table = results[0].table
    parts = [f"## {table.title}"]
    for result in results:
        heads = " | ".join(c.head for c in table.columns)
        parts.append(f"\n{result.setup.title}; ours (paper)\n\n| | {heads} |")
        parts.append("|---" + "|--:" * len(table.columns) + "|")
        for row in result.rows:
            cells = [f"{o} ({paper})" if paper != "–" else o for o, paper in result.cells(row)]
            parts.append(f"| {row.label} | {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def latex(results: Sequence[ResultTable]) -> str:
    """Booktabs, the paper's numbers in gray: needs the packages booktabs and xcolor."""
    table = results[0].table
    parts = [f"% {table.title}: ours, and the paper's in gray"]
    for result in results:
        heads = " & ".join(_tex(text) for text in (result.setup.title, *_heads(result)))
        parts += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
        parts += [rf"{heads} \\", r"\midrule"]
        for row in result.rows:
            cells = [f"{_tex(o)} \\textcolor{{gray}}{{{_tex(p)}}}" for o, p in result.cells(row)]
            parts.append(" & ".join([_tex(row.label), *cells]) + r" \\")
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def comma_separated(results: Sequence[ResultTable]) -> str:
    """One number a line, with the jobs that it comes from."""
    file = io.StringIO()
    out = csv.writer(file)
    out.writerow(["table", "task", "row", "metric", "ours", "deviation", "paper", "jobs"])
    for result in results:
        for row in result.rows:
            keys = " ".join(r.job.key for r in row.results)
            for column in result.table.columns:
                cell = result.cell(row, column)
                deviation = row.numbers.get(column.name, (None, None))[1]
                names = (result.table.name, result.setup.data, row.row.name, column.name)
                out.writerow([*names, cell.ours, deviation, cell.paper, keys])
    return file.getvalue()


def _heads(result: ResultTable) -> list[str]:
    return [column.head for column in result.table.columns]


def _tex(text: str) -> str:
    for sign, said in (("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$"), ("–", "--"), ("β", r"$\beta$")):
        text = text.replace(sign, said)
    return text
