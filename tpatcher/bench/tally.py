"""What the claims of a report come to: failures first, the paper's apart from our own."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpatcher.bench.claims import Verdict
from tpatcher.bench.table import ResultTable

Placed = tuple[str, Verdict]  # the title of the setup, and what was found there


@dataclass(frozen=True)
class Tally:
    """Claims of one source by what became of them."""

    source: str  # whose claims they are
    failed: Sequence[Placed]
    held: Sequence[Placed]
    unknown: Sequence[Placed]  # some of their jobs are missing

    @property
    def summary(self) -> str:
        """How many, in one line."""
        counts = f"{len(self.failed)} do not hold, {len(self.held)} hold"
        missing = f", {len(self.unknown)} lack jobs" if self.unknown else ""
        return f"Claims of {self.source}: {counts}{missing}."

    @property
    def lines(self) -> list[str]:
        """The summary, and below it every claim that does not hold, with its numbers."""
        return [self.summary, *(f"✗ {where}: {v.text} ({v.numbers})" for where, v in self.failed)]


def tally(tables: Sequence[ResultTable]) -> list[Tally]:
    """The claims of the paper, then those of our own; one in two tables of a task counts once."""
    found: dict[tuple[str, str], Verdict] = {}
    for table in tables:
        for verdict in table.verdicts:
            found.setdefault((table.setup.title, verdict.text), verdict)
    out = []
    for source, of_paper in (("the paper", True), ("our own", False)):
        placed = [(where, v) for (where, _), v in found.items() if v.of_paper is of_paper]
        if placed:
            by = {end: [p for p in placed if p[1].holds is end] for end in (False, True, None)}
            out.append(Tally(source, by[False], by[True], by[None]))
    return out
