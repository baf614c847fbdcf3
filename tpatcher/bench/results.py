"""Results of jobs, read from disk and summed up into the rows of a table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from tpatcher import sme
from tpatcher.bench.job import SCORES, Job
from tpatcher.bench.rows import Row


@dataclass(frozen=True)
class Result:
    """A job that is complete."""

    job: Job
    scores: dict[str, Any]  # all that scores.json holds
    steps: list[sme.Step]

    @classmethod
    def read(cls, job: Job, out: Path) -> "Result | None":
        """The job's result; None if it is not complete."""
        folder = out / "jobs" / job.key
        if not (folder / SCORES).exists():
            return None
        return cls(job, json.loads((folder / SCORES).read_bytes()), sme.read(folder)[1])


@dataclass(frozen=True)
class ResultRow:
    """A row with the results that it was made from."""

    row: Row
    results: Sequence[Result]
    expected: int  # how many jobs it is made from when all are complete

    @property
    def label(self) -> str:
        return self.row.label

    @property
    def steps(self) -> list[sme.Step]:
        """The steps of the first job: folder 0, or the whole stream."""
        return self.results[0].steps

    @property
    def incomplete(self) -> bool:
        """True if some, but not all, of the jobs are complete."""
        return 0 < len(self.results) < self.expected

    @property
    def anchor(self) -> str:
        """Where its commands stand in a page: rows that are made from the same jobs share them."""
        return f"{self.results[0].job.key}-{len(self.results)}" if self.results else ""

    def mean(self, metric: str) -> float:
        """A metric's mean; not a number if it was not measured."""
        return self.numbers.get(metric, (nan, nan))[0]

    @cached_property
    def numbers(self) -> dict[str, tuple[float, float]]:
        """Every number of the row, mean and deviation over folders."""
        if not self.results:
            return {}
        found = sme.summary([r.steps for r in self.results])
        found["seconds"] = found.pop("seconds_per_edit")
        found["growth"] = _spread([r.scores["scores"]["growth"] for r in self.results])
        found["N"] = _spread([r.scores["scores"]["N"] for r in self.results])
        found["kilobytes"] = _spread([r.scores["bytes_per_edit"] / 1000 for r in self.results])
        peaks = [step.megabytes for r in self.results for step in r.steps]
        if known := [p for p in peaks if p is not None]:
            found["megabytes"] = (max(known), 0.0)
        fixed = [step.fixed for step in self.steps]
        found["first edit"] = _spread(fixed[:1] or [True])
        found["later half"] = _spread(fixed[len(fixed) // 2 :] or [True])
        active = self.results[0].scores.get("activations") or {}
        return found | {k: (v[0], v[1]) for k, v in active.items() if k != "heat"}


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), pstdev(values)
