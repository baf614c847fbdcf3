"""What the paper claims, as checks of our own numbers."""

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

    def verdict(self, table: Sequence[ResultRow]) -> Verdict:
        """Check the claim on the rows of a table."""
        if isinstance(self.about, str):
            least, found = 2, [row for row in table if row.row.sweep == self.about]
        else:
            known = {row.row: row for row in table}
            least, found = len(self.about), [known[r] for r in self.about if r in known]
        if len(found) < least or not all(row.results for row in found):
            return Verdict(self.text, None, "not all of the jobs are complete")
        number = 0 if self.statistic == "mean" else 1
        by_row = [[row.numbers[metric][number] for metric in self.metrics] for row in found]
        told = []
        for row, values in zip(found, by_row, strict=True):
            pairs = zip(self.metrics, values, strict=True)
            told.append(f"{row.label} " + ", ".join(f"{m} {round(v, 4):g}" for m, v in pairs))
        by_metric = zip(*by_row, strict=True)
        return Verdict(self.text, bool(self.check(*by_metric)), "; ".join(told))


def _more(text: str, metric: str, high: rows.Row, low: rows.Row, by: float = 0.0) -> Claim:
    """One row has more of a metric than another; a tie does not count."""
    return Claim(text, (high, low), (metric,), lambda values: values[0] > values[1] + by)


def _most(text: str, metric: str, row: rows.Row, *others: rows.Row) -> Claim:
    """No other row has more of a metric."""
    return Claim(text, (row, *others), (metric,), lambda values: values[0] >= max(values))


def keeps(text: str, row: rows.Row, bar: float = 0.98, generality: float = 0.0) -> Claim:
    """An editor fixes every mistake, and keeps its edits and the model."""

    def check(found: Sequence[float], *kept: Sequence[float]) -> bool:
        return found[0] >= generality and all(values[0] >= bar for values in kept)

    return Claim(text, (row,), ("GR", "SR", "ER", "TrainR", "TestR"), check)


def _collapses(row: rows.Row) -> Claim:
    both = ("SR", "TrainR")
    return Claim(f"{row.label} collapses", (row,), both, lambda *found: max(found)[0] < 0.9)


def _at_first_only(row: rows.Row) -> Claim:
    text, when = f"{row.label} works at first, but soon no longer", ("first edit", "later half")
    return Claim(text, (row,), when, lambda first, later: first[0] == 1 and later[0] < 0.5)


def _makes_more_edits(row: rows.Row) -> Claim:
    text = f"{row.label} makes more"
    return Claim(text, (row,), ("E", "N"), lambda edits, mistakes: edits[0] >= mistakes[0])


TABLE1 = (
    keeps("T-Patcher holds all five metrics", rows.T_PATCHER, generality=0.7),
    keeps("so does its fast preset", rows.FAST, generality=0.7),
    Claim("Fine-tuning fixes every mistake but forgets past edits", rows.FINE_TUNED, ("SR", "ER"),
          lambda fixed, kept: min(fixed) >= 0.99 and max(kept) <= 0.9),
    _more("… more with the last layer than with all", "ER", rows.FT_ALL, rows.FT_LAST),
    _more("The KL term keeps more of the model", "TrainR", rows.FT_ALL_KL, rows.FT_ALL),
    _collapses(rows.MEND),
    _collapses(rows.KE),
    _most("SERA has the highest GR", "GR", rows.SERA, rows.T_PATCHER, *rows.FINE_TUNED),
    _more("SERA keeps less of the model than T-Patcher", "TestR", rows.T_PATCHER, rows.SERA, 0.005),
)  # fmt: skip
WHOLE_STREAM = (
    _more("T-Patcher keeps more of its edits than FT(all)+KL", "ER",
          rows.T_PATCHER, rows.FT_ALL_KL, 0.05),
    Claim("T-Patcher makes fewer edits than f0 makes mistakes", (rows.T_PATCHER,), ("E", "N"),
          lambda edits, mistakes: edits[0] < mistakes[0]),
    _makes_more_edits(rows.FT_ALL_KL),
    _makes_more_edits(rows.SERA),
    _more("T-Patcher keeps more of the model than SERA", "TestR", rows.T_PATCHER, rows.SERA),
)  # fmt: skip
TABLE3 = (
    _more("Without l_m the model is hurt severely", "TrainR",
          rows.T_PATCHER, rows.WITHOUT_LM, 0.05),
    _most("… and generality is highest", "GR", rows.WITHOUT_LM, rows.KL_PATCH, rows.T_PATCHER),
    _more("KL alleviates this only in part", "TrainR", rows.KL_PATCH, rows.WITHOUT_LM),
    _more("l_m1 does most, l_m2 still improves", "ER", rows.T_PATCHER, rows.WITHOUT_LM2),
)  # fmt: skip
TABLE4 = (
    _most("Without l_m the activation by the edit itself is highest", "Edit",
          rows.WITHOUT_LM, rows.KL_PATCH, rows.T_PATCHER),
    Claim("The memory loss turns patches off elsewhere", (rows.T_PATCHER,),
          ("Edit", "Past-edit", "Random"),
          lambda own, past, other: max(past[0], other[0]) <= 0.05 * own[0]),
    _more("The KL patch has the lowest activation by the edit", "Edit",
          rows.T_PATCHER, rows.KL_PATCH),
)  # fmt: skip
TABLE5 = (
    Claim("T-Patcher deviates least",
          (rows.T_PATCHER, *rows.FINE_TUNED, rows.WITHOUT_LM, rows.KL_PATCH),
          ("ER", "TrainR", "TestR"),
          lambda *metrics: all(values[0] <= min(values) for values in metrics), "deviation"),
)  # fmt: skip
TABLE6 = (
    Claim("A fixed memory costs little ER", (rows.FIXED_MEMORY, rows.T_PATCHER), ("ER",),
          lambda kept: -0.02 <= kept[1] - kept[0] <= 0.05),
)  # fmt: skip
FIGURE4 = (_at_first_only(rows.MEND), _at_first_only(rows.KE))
FIGURE6 = (
    Claim("Generality is highest in the last layer", rows.LAYER, ("GR",),
          lambda by_layer: by_layer[-1] > max(by_layer[:-1])),
    Claim("The size of the memory matters little", rows.MEMORY, ("SR", "ER", "TrainR", "TestR"),
          lambda *metrics: all(max(values) - min(values) <= 0.05 for values in metrics)),
)  # fmt: skip
FIGURE7 = (
    Claim("T-Patcher keeps the model, the others wear it down",
          (rows.T_PATCHER, rows.KE, rows.MEND, rows.FT_ALL_KL), ("TrainR",),
          lambda kept: kept[0] >= 0.98 and max(kept[1:]) < kept[0]),
)  # fmt: skip
FRONTIER = (
    Claim("The fast preset is not behind the paper's (beyond the paper)",
          (rows.FAST, rows.beta(-3.0)), ("GR", "TestR"),
          lambda gr, kept: gr[0] >= gr[1] - 0.02 and kept[0] >= kept[1] - 0.005),
)  # fmt: skip
