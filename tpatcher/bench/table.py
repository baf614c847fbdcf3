"""A table or figure of the paper: what it compares, the jobs behind it, and its numbers."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tpatcher.bench import published
from tpatcher.bench.claims import Claim, Verdict
from tpatcher.bench.job import Job
from tpatcher.bench.report.figures import METRICS, Picture
from tpatcher.bench.results import Result, ResultRow
from tpatcher.bench.rows import Row
from tpatcher.bench.scale import Scale
from tpatcher.bench.setup import Kind, Setup
from tpatcher.sme import PROBES

Stream = Literal["all folders", "folder 0", "the whole edit set"]
FOLDERS: Stream = "all folders"
FIRST: Stream = "folder 0"
WHOLE: Stream = "the whole edit set"


HEADS = {
    "seconds": "s per edit",
    "megabytes": "MB while editing",
    "kilobytes": "kB per edit",
    "growth": "growth in %",
}
DIGITS = {"E": 0, "N": 0, "megabytes": 0, "kilobytes": 1, "seconds": 2} | dict.fromkeys(
    ("Edit", "Past-edit", "Random"), 2
)


@dataclass(frozen=True)
class Table:
    """A table or figure: what it compares, on which stream, and how it is shown."""

    name: str
    title: str
    rows: tuple[Row, ...] | Callable[[Setup, Scale], tuple[Row, ...]]
    stream: Stream = FOLDERS
    kinds: tuple[Kind, ...] = ("fc", "qa")
    columns: tuple[str, ...] = METRICS
    statistic: Literal["mean", "deviation", "mean ± deviation"] = "mean"
    pictures: tuple[Picture, ...] = ()
    claims: tuple[Claim, ...] = ()
    about: str = ""
    published: str = ""  # the table of the paper to compare with, if not that of the same name
    shows_fixes: bool = False  # some mistakes of the first row, before and after


def jobs(row: Row, setup: Setup, scale: Scale, stream: Stream) -> list[Job]:
    """The jobs whose results a row sums up."""
    shared: dict[str, Any] = {
        "model": setup.model,
        "data": setup.data,
        "path": setup.path,
        "exclude": setup.exclude,
        "editor": row.editor,
        "fields": scale.editor_fields(row.editor, setup.data) | scale.row_fields(row.fields),
        "n_train": scale.n_train,
        "n_test": scale.n_test,
        "memory_size": row.memory_size or scale.memory_size,
        "demo": scale.demo,
        "skip_bad": setup.skip_bad,
    }
    if scale.folders == 1:  # then folder 0 is the whole edit set, in every table
        every = scale.measure_every if row.measure_every is None else row.measure_every
        return [Job(**shared, edits=scale.edits[setup.kind], measure_every=every)]
    if stream == WHOLE:
        edits = scale.whole_stream[setup.kind]
        return [Job(**shared, edits=edits, measure_every=row.measure_every)]
    shared |= {"folders": scale.folders, "edits": scale.edits[setup.kind]}
    # curves are shown of folder 0: what is retained is not measured as often in the others
    first = Job(**shared, measure_every=scale.measure_every)
    others = [Job(**shared, folder=i) for i in range(1, scale.folders)]
    return [first, *others] if stream == FOLDERS else [first]


@dataclass(frozen=True)
class Planned:
    """A table on one setup, with the jobs that each of its rows is made from."""

    table: Table
    setup: Setup
    jobs: dict[Row, list[Job]]

    def read(self, out: Path) -> "ResultTable":
        """The table, of those results that are there."""
        found = []
        for row, wanted in self.jobs.items():
            results = [r for job in wanted if (r := Result.read(job, out))]
            found.append(ResultRow(row, results, len(wanted)))
        return ResultTable(self.table, self.setup, found)


def plan(
    chosen: Iterable[Table],
    on: Sequence[Setup],
    scale: Scale,
    skip: Collection[Row] = (),
    only: Collection[Row] = (),
) -> list[Planned]:
    """Every table on every setup, with `only` some rows. The same job may stand in several."""
    out = []
    for table in chosen:
        # a figure that the paper has for one task only is made of the other if that is alone
        for setup in [s for s in on if s.kind in table.kinds] or on:
            rows = table.rows(setup, scale) if callable(table.rows) else table.rows
            wanted = [r for r in rows if r not in skip and (not only or r in only)]
            made = {r: jobs(r, setup, scale, table.stream) for r in wanted}
            if made:
                out.append(Planned(table, setup, made))
    return out


class Number(NamedTuple):
    """A number of a table, with what stands behind its ±."""

    value: float | None = None
    deviation: float | None = None

    def text(self, digits: int) -> str:
        """The number as text; a dash where there is none."""
        if self.value is None:
            return "–"
        behind = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.value:.{digits}f}{behind}"


@dataclass(frozen=True)
class ResultTable:
    """A table on one setup, with the results that there are."""

    table: Table
    setup: Setup
    rows: Sequence[ResultRow]

    @property
    def with_results(self) -> list[ResultRow]:
        return [row for row in self.rows if row.results]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The table's columns; behind the five metrics come the probes that some row has."""
        first, rest = self.table.columns[: len(METRICS)], self.table.columns[len(METRICS) :]
        if first != METRICS or self.table.statistic == "deviation":
            return self.table.columns
        measured = [name for name in PROBES if any(name in row.numbers for row in self.rows)]
        return (*first, *measured, *rest)

    @property
    def heads(self) -> list[str]:
        """What stands above the columns."""
        return [HEADS.get(name, name) for name in self.columns]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The claims about this table, each with its verdict."""
        return [claim.verdict(self.rows) for claim in self.table.claims]

    def cells(self, row: ResultRow) -> list[tuple[str, str]]:
        """A row's numbers as text, ours and the paper's."""
        out = []
        for column in self.columns:
            digits = DIGITS.get(column, 5 if self.table.statistic == "deviation" else 3)
            ours, paper = self.cell(row, column)
            out.append((ours.text(digits), paper.text(digits)))
        return out

    def cell(self, row: ResultRow, column: str) -> tuple[Number, Number]:
        """A number of a row, ours and the paper's."""
        where = (self.table.published or self.table.name, self.setup.kind, row.row.name)
        behind = published.cells(*where, deviations=True).get(column)
        paper = Number(published.cells(*where).get(column), behind)
        mean, deviation = row.numbers.get(column, (None, None))
        if self.table.statistic == "mean ± deviation":
            return Number(mean, deviation), paper
        return Number(mean if self.table.statistic == "mean" else deviation), paper
