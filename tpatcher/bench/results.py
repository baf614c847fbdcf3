"""Results as tables: what our jobs say, beside what the paper printed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tpatcher import sme
from tpatcher.bench import published
from tpatcher.bench.experiments import TABLES, Task, label
from tpatcher.bench.job import SCORES, Job

DIGITS = {"E": 0, "N": 0, "kilobytes": 1, "megabytes": 0, "seconds": 2, "growth": 3, "Edit": 2,
          "Past-edit": 2, "Random": 2}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A job that is complete."""

    job: Job
    said: dict[str, Any]
    steps: list[sme.Step]

    @classmethod
    def read(cls, job: Job, out: Path) -> "Result | None":
        place = out / "jobs" / job.key
        if not (place / SCORES).exists():
            return None
        return cls(job, json.loads((place / SCORES).read_bytes()), sme.read(place)[1])


@dataclass(frozen=True)
class Cell:
    """One number: ours, its deviation, the paper's."""

    ours: float | None
    deviation: float | None = None
    paper: float | None = None
    paper_deviation: float | None = None
    digits: int = 3


@dataclass(frozen=True)
class Line:
    """A row with the results it was made from."""

    row: str
    results: Sequence[Result]
    wanted: int  # how many jobs it is made from when all are complete

    @property
    def label(self) -> str:
        return label(self.row)

    @cached_property
    def numbers(self) -> dict[str, tuple[float, float]]:
        """Every number of the row, mean and deviation over folders."""
        if not self.results:
            return {}
        found = sme.summary([r.steps for r in self.results])
        scores = [r.said["scores"] for r in self.results]
        found["seconds"] = found.pop("seconds_per_edit")
        found["growth"] = _spread([s["growth"] for s in scores])
        found["N"] = _spread([s["N"] for s in scores])
        found["kilobytes"] = _spread([r.said["bytes_per_edit"] / 1000 for r in self.results])
        peaks = [step.megabytes for r in self.results for step in r.steps]
        if known := [p for p in peaks if p is not None]:
            found["megabytes"] = (max(known), 0.0)
        active = self.results[0].said.get("activations") or {}
        found |= {k: tuple(v) for k, v in active.items() if k != "heat"}
        return found


@dataclass(frozen=True)
class Sheet:
    """One table or figure on one task."""

    name: str
    task: Task
    lines: Sequence[Line]

    @property
    def columns(self) -> tuple[str, ...]:
        return TABLES[self.name].shows

    def cell(self, line: Line, column: str) -> Cell:
        digits = 5 if self.name == "table5" else DIGITS.get(column, 3)
        paper = published.cells(self.name, self.task.kind, line.row)
        apart = published.deviations(self.name, self.task.kind, line.row)
        ours = line.numbers.get(column)
        said, printed = paper.get(column), apart.get(column)
        if self.name == "costs":
            said = _text(column, self.task.kind, line.row)
        if ours is None:
            return Cell(None, None, said, printed, digits)
        if self.name == "table5":
            return Cell(ours[1], None, said, None, digits)
        return Cell(ours[0], ours[1] if self.name == "table4" else None, said, printed, digits)

    @property
    def by_row(self) -> dict[str, Line]:
        return {line.row: line for line in self.lines if line.results}


def sheet(name: str, task: Task, rows: dict[str, list[Job]], out: Path) -> Sheet:
    """A table of the results that there are."""
    lines = []
    for row, jobs in rows.items():
        found = [r for job in jobs if (r := Result.read(job, out))]
        lines.append(Line(row, found, len(jobs)))
    return Sheet(name, task, lines)


def shown(cell: Cell) -> tuple[str, str]:
    """Ours and the paper's as text; a dash where there is none."""

    def one(value: float | None, apart: float | None) -> str:
        if value is None:
            return "–"
        said = f"{value:.{cell.digits}f}"
        return said if apart is None else f"{said} ± {apart:.{cell.digits}f}"

    return one(cell.ours, cell.deviation), one(cell.paper, cell.paper_deviation)


def _text(column: str, kind: str, row: str) -> float | None:
    """What the paper says of costs in its text: T-Patcher's only."""
    said = published.numbers()["text"]
    if row != "t-patcher":
        return None
    if column == "seconds":
        return float(said["seconds per edit"][kind]["40000"])
    return float(said["growth in %"][kind]) if column == "growth" else None


def _spread(found: Sequence[float]) -> tuple[float, float]:
    mean = sum(found) / len(found)
    return mean, (sum((f - mean) ** 2 for f in found) / len(found)) ** 0.5
