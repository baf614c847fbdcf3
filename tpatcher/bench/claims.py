"""What the paper claims, as checks of our own numbers: a tie is never "more".

A claim that needs a bar says it, and those that are not the paper's are marked and counted apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tpatcher.bench import rows
from tpatcher.bench.results import ResultRow

Check = Callable[..., bool]  # is given a list per metric: the values of a claim's rows, in order


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds (None if jobs are missing), and the numbers behind that."""

    text: str
    holds: bool | None
    numbers: str
    of_paper: bool = True

    @property
    def sign(self) -> str:
        return {True: "✓", False: "✗", None: "·"}[self.holds]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the check of our rows that it comes down to."""

    text: str
    about: tuple[rows.Row, ...] | str  # rows, or the setting that they sweep
    metrics: tuple[str, ...]
    check: Check
    statistic: Literal["mean", "deviation"] = "mean"
    of_paper: bool = True  # False: our own, not counted with the paper's

    def verdict(self, table: Sequence[ResultRow]) -> Verdict:
        """Check the claim on the rows of a table."""
        if isinstance(self.about, str):
            least, found = 2, [row for row in table if row.row.sweep == self.about]
        else:
            known = {row.row: row for row in table}
            least, found = len(self.about), [known[r] for r in self.about if r in known]
        if len(found) < least or any(len(row.results) < row.expected for row in found):
            return Verdict(self.text, None, "not all of the jobs are complete", self.of_paper)
        missing = [m for m in self.metrics if any(m not in row.numbers for row in found)]
        if missing:
            return Verdict(self.text, None, f"{missing[0]} was not measured", self.of_paper)
        number = 0 if self.statistic == "mean" else 1
        if number and any(row.expected < 2 for row in found):
            return Verdict(self.text, None, "one folder has no deviation", self.of_paper)
        by_row = [[row.numbers[metric][number] for metric in self.metrics] for row in found]
        told = []
        for row, values in zip(found, by_row, strict=True):
            pairs = zip(self.metrics, values, strict=True)
            told.append(f"{row.label} " + ", ".join(f"{m} {round(v, 4):g}" for m, v in pairs))
        by_metric = zip(*by_row, strict=True)
        return Verdict(self.text, bool(self.check(*by_metric)), "; ".join(told), self.of_paper)


def _more(text: str, metric: str, high: rows.Row, *low: rows.Row, by: float = 0.0) -> Claim:
    """One row has more of a metric than each of the others; a tie does not count."""
    return Claim(text, (high, *low), (metric,), lambda values: values[0] > max(values[1:]) + by)


def keeps(
    text: str, row: rows.Row, bar: float, generality: float = 0.0, of_paper: bool = False
) -> Claim:
    """An editor has at least `generality` of GR and `bar` of the other four metrics."""

    def check(found: Sequence[float], *kept: Sequence[float]) -> bool:
        return found[0] >= generality and all(values[0] >= bar for values in kept)

    metrics = ("GR", "SR", "ER", "TrainR", "TestR")
    return Claim(text, (row,), metrics, check, of_paper=of_paper)


def _collapses(row: rows.Row) -> Claim:
    text, both = f"{row.label} collapses (SR and TrainR below 0.5)", ("SR", "TrainR")
    return Claim(text, (row,), both, lambda fixed, kept: max(fixed[0], kept[0]) < 0.5)


def _at_first_only(row: rows.Row) -> Claim:
    text = f"{row.label} fixes the first mistake, but less than half of those in the later half"
    when = ("first edit", "later half")
    return Claim(text, (row,), when, lambda first, later: first[0] == 1 and later[0] < 0.5)


def _makes_more_edits(row: rows.Row) -> Claim:
    text = f"{row.label} makes more edits than f0 makes mistakes"
    return Claim(text, (row,), ("E", "N"), lambda edits, mistakes: edits[0] > mistakes[0])


BARS = "(GR ≥ 0.7, the others ≥ 0.98)"
TABLE1 = (
    keeps(f"T-Patcher holds all five metrics {BARS}", rows.T_PATCHER, 0.98, 0.7, of_paper=True),
    keeps(f"The fast preset holds all five metrics {BARS}", rows.FAST, 0.98, 0.7),
    keeps(f"… and so it does when it reads the text {BARS}", rows.TEXT, 0.98, 0.7),
    Claim("Fine-tuning fixes every mistake but forgets past edits (ER ≤ 0.9)", rows.FINE_TUNED,
          ("SR", "ER"), lambda fixed, kept: min(fixed) == 1 and max(kept) <= 0.9),
    _more("… more of them with the last layer than with all", "ER", rows.FT_ALL, rows.FT_LAST),
    Claim("The KL term keeps more of the model", rows.FINE_TUNED, ("TrainR",),
          lambda kept: kept[2] > kept[0] and kept[3] > kept[1]),
    _collapses(rows.MEND),
    _collapses(rows.KE),
    _more("SERA has the highest GR", "GR", rows.SERA, rows.T_PATCHER, *rows.FINE_TUNED),
    _more("SERA keeps less of the model than T-Patcher (by 0.005)", "TestR",
          rows.T_PATCHER, rows.SERA, by=0.005),
)  # fmt: skip
WHOLE_STREAM = (
    _more("T-Patcher keeps more of its edits than FT(all)+KL (by 0.05)", "ER",
          rows.T_PATCHER, rows.FT_ALL_KL, by=0.05),
    Claim("T-Patcher makes fewer edits than f0 makes mistakes", (rows.T_PATCHER,), ("E", "N"),
          lambda edits, mistakes: edits[0] < mistakes[0]),
    _makes_more_edits(rows.FT_ALL_KL),
    _makes_more_edits(rows.SERA),
    _more("T-Patcher keeps more of the model than SERA", "TestR", rows.T_PATCHER, rows.SERA),
)  # fmt: skip
TABLE3 = (
    _more("Without l_m the model is hurt severely (by 0.05)", "TrainR",
          rows.T_PATCHER, rows.WITHOUT_LM, by=0.05),
    _more("… and generality is highest", "GR", rows.WITHOUT_LM, rows.KL_PATCH, rows.T_PATCHER),
    Claim("KL alleviates this, but only in part",
          (rows.WITHOUT_LM, rows.KL_PATCH, rows.T_PATCHER), ("TrainR",),
          lambda kept: kept[0] < kept[1] < kept[2]),
    Claim("l_m1 does most, l_m2 still improves",
          (rows.WITHOUT_LM, rows.WITHOUT_LM2, rows.T_PATCHER), ("ER",),
          lambda kept: kept[1] - kept[0] > kept[2] - kept[1] > 0),
)  # fmt: skip
TABLE4 = (
    _more("Without l_m the activation by the edit itself is highest", "Edit",
          rows.WITHOUT_LM, rows.KL_PATCH, rows.T_PATCHER),
    Claim("The memory loss turns patches off elsewhere (to a twentieth)", (rows.T_PATCHER,),
          ("Edit", "Past-edit", "Random"),
          lambda own, past, other: max(past[0], other[0]) <= 0.05 * own[0]),
    Claim("The KL patch has the lowest activation by the edit",
          (rows.KL_PATCH, rows.WITHOUT_LM, rows.T_PATCHER), ("Edit",),
          lambda own: own[0] < min(own[1:])),
)  # fmt: skip
TABLE5 = (
    Claim("T-Patcher deviates least",
          (rows.T_PATCHER, *rows.FINE_TUNED, rows.WITHOUT_LM, rows.KL_PATCH),
          ("ER", "TrainR", "TestR"),
          lambda *metrics: all(values[0] < min(values[1:]) for values in metrics), "deviation"),
)  # fmt: skip
TABLE6 = (
    Claim("A fixed memory costs little ER (at most 0.05)", (rows.FIXED_MEMORY, rows.T_PATCHER),
          ("ER",), lambda kept: kept[1] - kept[0] <= 0.05),
)  # fmt: skip
FIGURE4 = (_at_first_only(rows.MEND), _at_first_only(rows.KE))
FIGURE6 = (
    Claim("Generality is highest in the last layer", rows.LAYER, ("GR",),
          lambda by_layer: by_layer[-1] > max(by_layer[:-1])),
    Claim("The size of the memory matters little (at most 0.05)", rows.MEMORY,
          ("SR", "ER", "TrainR", "TestR"),
          lambda *metrics: all(max(values) - min(values) <= 0.05 for values in metrics)),
)  # fmt: skip
FIGURE7 = (
    Claim("T-Patcher keeps the model (TrainR ≥ 0.98), the others wear it down",
          (rows.T_PATCHER, rows.KE, rows.MEND, rows.FT_ALL_KL), ("TrainR",),
          lambda kept: kept[0] >= 0.98 and max(kept[1:]) < kept[0]),
)  # fmt: skip
FRONTIER = (
    Claim("The fast preset is not behind the paper's, neither in GR nor in TestR",
          (rows.FAST, rows.T_PATCHER), ("GR", "TestR"),
          lambda gr, kept: gr[0] >= gr[1] and kept[0] >= kept[1], of_paper=False),
)  # fmt: skip
