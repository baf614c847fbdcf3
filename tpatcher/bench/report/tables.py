"""Tables for the screen, for Markdown, LaTeX and CSV: ours beside the paper's."""

import csv
import io
from collections.abc import Sequence

from rich.table import Table

from tpatcher.bench.experiments import TABLES
from tpatcher.bench.results import Sheet, shown

HEADS = {"seconds": "s per edit", "megabytes": "MB while editing", "kilobytes": "kB per edit",
         "growth": "growth in %"}  # fmt: skip


def head(column: str) -> str:
    return HEADS.get(column, column)


def screen(sheet: Sheet) -> Table:
    """With Rich: ours, then the paper's dimmed."""
    out = Table(title=f"{TABLES[sheet.name].title}\n{sheet.task.title}", title_justify="left")
    out.add_column("ours [dim]paper[/]", no_wrap=True)
    for column in sheet.columns:
        out.add_column(head(column), justify="right", no_wrap=True)
    for line in sheet.lines:
        cells = [shown(sheet.cell(line, column)) for column in sheet.columns]
        partly = 0 < len(line.results) < line.wanted
        few = f" [dim]{len(line.results)}/{line.wanted}[/]" if partly else ""
        out.add_row(line.label + few, *(f"{ours} [dim]{paper}[/]" for ours, paper in cells))
    return out


def markdown(sheets: Sequence[Sheet]) -> str:
    """Every cell is "ours (paper)"."""
    parts = [f"## {TABLES[sheets[0].name].title}"]
    for sheet in sheets:
        columns = " | ".join(head(c) for c in sheet.columns)
        parts.append(f"\n{sheet.task.title}; ours (paper)\n\n| | {columns} |")
        parts.append("|---" + "|--:" * len(sheet.columns) + "|")
        for line in sheet.lines:
            cells = (shown(sheet.cell(line, c)) for c in sheet.columns)
            said = " | ".join(
                f"{ours} ({paper})" if paper != "–" else ours for ours, paper in cells
            )
            parts.append(f"| {line.label} | {said} |")
    return "\n".join(parts) + "\n"


def latex(sheets: Sequence[Sheet]) -> str:
    """Booktabs, the paper's numbers in gray: needs the packages booktabs and xcolor."""
    parts = [f"% {TABLES[sheets[0].name].title}: ours, and the paper's in gray"]
    for sheet in sheets:
        parts += [rf"\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}", r"\toprule",
                  " & ".join([_tex(sheet.task.title), *(_tex(head(c)) for c in sheet.columns)])
                  + r" \\", r"\midrule"]  # fmt: skip
        for line in sheet.lines:
            cells = (shown(sheet.cell(line, c)) for c in sheet.columns)
            said = [f"{_tex(ours)} \\textcolor{{gray}}{{{_tex(paper)}}}" for ours, paper in cells]
            parts.append(" & ".join([_tex(line.label), *said]) + r" \\")
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def comma_separated(sheets: Sequence[Sheet]) -> str:
    """One number a line, with the jobs that it comes from."""
    file = io.StringIO()
    out = csv.writer(file)
    out.writerow(["table", "task", "row", "metric", "ours", "deviation", "paper", "jobs"])
    for sheet in sheets:
        for line in sheet.lines:
            for column in sheet.columns:
                cell = sheet.cell(line, column)
                apart = line.numbers.get(column, (None, None))[1]
                keys = " ".join(r.job.key for r in line.results)
                out.writerow([sheet.name, sheet.task.data, line.row, column, cell.ours, apart,
                              cell.paper, keys])  # fmt: skip
    return file.getvalue()


def _tex(text: str) -> str:
    for sign, said in (("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$"), ("–", "--"), ("β", r"$\beta$")):
        text = text.replace(sign, said)
    return text
