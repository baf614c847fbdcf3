"""What the paper claims, as checks of our own numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpatcher.bench.results import ResultRow, ResultRows
from tpatcher.bench.rows import (
    FAST,
    FINE_TUNED,
    FIXED_MEMORY,
    FT_ALL,
    FT_ALL_KL,
    FT_LAST,
    KE,
    KL_PATCH,
    LAYER,
    MEMORY,
    MEND,
    SERA,
    T_PATCHER,
    WITHOUT_LM,
    WITHOUT_LM2,
    Row,
    beta,
    layer,
)

KEPT = ("SR", "ER", "TrainR", "TestR")
Check = Callable[[ResultRows], tuple[bool, str]]


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
    needs: Sequence[Row]
    check: Check

    def verdict(self, rows: ResultRows) -> Verdict:
        """Check the claim on the rows that have results."""
        if not rows or any(row not in rows for row in self.needs):
            return Verdict(self.text, None, "not all of the jobs are complete")
        holds, numbers = self.check(rows)
        return Verdict(self.text, bool(holds), numbers)


def _values(rows: Sequence[ResultRow], metric: str) -> str:
    """The numbers behind a verdict."""
    return f"{metric}: " + ", ".join(f"{row.label} {row.mean(metric):.3f}" for row in rows)


def _above(metric: str, high: Row, low: Row, by: float = 0.0) -> Check:
    """One row has more of a metric than another; a tie does not count."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        more, less = rows[high], rows[low]
        return more.mean(metric) > less.mean(metric) + by, _values([more, less], metric)

    return check


def _largest(metric: str, row: Row, among: Sequence[Row]) -> Check:
    """No other row has more of a metric."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        found = [rows[r] for r in among]
        best = max(r.mean(metric) for r in found)
        return rows[row].mean(metric) >= best, _values(found, metric)

    return check


def _reaches(row: Row, bars: Mapping[str, float]) -> Check:
    """A row has at least so much of each metric."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        numbers = {m: rows[row].mean(m) for m in bars}
        told = ", ".join(f"{m} {v:.3f}" for m, v in numbers.items())
        return all(numbers[m] >= bar for m, bar in bars.items()), told

    return check


def _forgets(rows: ResultRows) -> tuple[bool, str]:
    found = [rows[r] for r in FINE_TUNED]
    fixed = all(r.mean("SR") >= 0.99 for r in found)
    return fixed and all(r.mean("ER") <= 0.9 for r in found), _values(found, "ER")


def _collapses(row: Row) -> Check:
    def check(rows: ResultRows) -> tuple[bool, str]:
        sr, kept = rows[row].mean("SR"), rows[row].mean("TrainR")
        return sr < 0.9 and kept < 0.9, f"SR {sr:.3f}, TrainR {kept:.3f}"

    return check


def _edits(row: Row, fewer: bool) -> Check:
    """An editor makes fewer edits than f0 makes mistakes, or at least as many."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        E, N = rows[row].mean("E"), rows[row].mean("N")
        return (E < N if fewer else E >= N), f"E {E:.0f}, N {N:.0f}"

    return check


def _silent_elsewhere(row: Row) -> Check:
    """A patch hardly responds to other mistakes than its own."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        own, past, other = (rows[row].mean(m) for m in ("Edit", "Past-edit", "Random"))
        told = f"Edit {own:.2f}, Past-edit {past:.3f}, Random {other:.3f}"
        return max(past, other) <= 0.05 * own, told

    return check


def _steadiest(rows: ResultRows) -> tuple[bool, str]:
    others = [rows[r] for r in (*FINE_TUNED, WITHOUT_LM, KL_PATCH)]
    ours = {m: rows[T_PATCHER].deviation(m) for m in ("ER", "TrainR", "TestR")}
    least = {m: min(r.deviation(m) for r in others) for m in ours}
    told = ", ".join(f"{m} {ours[m]:.4f} (others from {least[m]:.4f})" for m in ours)
    return all(ours[m] <= least[m] for m in ours), told


def _slight_decline(rows: ResultRows) -> tuple[bool, str]:
    found = [rows[FIXED_MEMORY], rows[T_PATCHER]]
    fall = found[1].mean("ER") - found[0].mean("ER")
    return -0.02 <= fall <= 0.05, _values(found, "ER")


def _first_then_not(row: Row) -> Check:
    """An editor is effective in the first few steps, but shortly after no longer."""

    def check(rows: ResultRows) -> tuple[bool, str]:
        fixed = [step.fixed for step in rows[row].steps]
        half = max(1, len(fixed) // 2)
        late = sum(fixed[half:]) / max(1, len(fixed) - half)
        return fixed[0] and late < 0.5, f"first edit {fixed[0]}, later half {late:.2f}"

    return check


def _keeps_model(rows: ResultRows) -> tuple[bool, str]:
    ours, *others = found = [rows[r] for r in (T_PATCHER, KE, MEND, FT_ALL_KL)]
    kept, most = ours.mean("TrainR"), max(r.mean("TrainR") for r in others)
    return kept >= 0.98 and most < kept, _values(found, "TrainR")


def _swept(rows: ResultRows, setting: str) -> list[ResultRow]:
    """The rows that differ in one setting, by its value."""
    found = [r for r in rows.values() if r.row.sweep == setting]
    return sorted(found, key=lambda r: r.row.value)


def _last_layer_best(rows: ResultRows) -> tuple[bool, str]:
    *others, last = found = _swept(rows, LAYER)
    return last.mean("GR") > max(r.mean("GR") for r in others), _values(found, "GR")


def _size_insensitive(rows: ResultRows) -> tuple[bool, str]:
    means = {m: [r.mean(m) for r in _swept(rows, MEMORY)] for m in KEPT}
    spread = {m: max(found) - min(found) for m, found in means.items()}
    return max(spread.values()) <= 0.05, ", ".join(f"{m} within {v:.3f}" for m, v in spread.items())


def _same_frontier(rows: ResultRows) -> tuple[bool, str]:
    ours, paper = rows[FAST], rows[beta(-3.0)]
    gr, kept = ((ours.mean(m), paper.mean(m)) for m in ("GR", "TestR"))
    told = f"GR {gr[0]:.3f} and {gr[1]:.3f}, TestR {kept[0]:.4f} and {kept[1]:.4f}"
    return gr[0] >= gr[1] - 0.02 and kept[0] >= kept[1] - 0.005, told


ALL_FIVE = {"GR": 0.7, **dict.fromkeys(KEPT, 0.98)}
ALTERNATIVES = (WITHOUT_LM, KL_PATCH, T_PATCHER)
COMPARED = (SERA, T_PATCHER, *FINE_TUNED)

TABLE1 = (
    Claim("T-Patcher holds all five metrics", (T_PATCHER,), _reaches(T_PATCHER, ALL_FIVE)),
    Claim("so does its fast preset", (FAST,), _reaches(FAST, ALL_FIVE)),
    Claim("Fine-tuning fixes every mistake but forgets past edits", FINE_TUNED, _forgets),
    Claim("… more with the last layer than with all", (FT_LAST, FT_ALL),
          _above("ER", FT_ALL, FT_LAST)),
    Claim("The KL term keeps more of the model", (FT_ALL, FT_ALL_KL),
          _above("TrainR", FT_ALL_KL, FT_ALL)),
    Claim("MEND collapses", (MEND,), _collapses(MEND)),
    Claim("KE collapses", (KE,), _collapses(KE)),
    Claim("SERA has the highest GR", COMPARED, _largest("GR", SERA, COMPARED)),
    Claim("SERA keeps less of the model than T-Patcher", (SERA, T_PATCHER),
          _above("TestR", T_PATCHER, SERA, 0.005)),
)  # fmt: skip
WHOLE_STREAM = (
    Claim("T-Patcher keeps more of its edits than FT(all)+KL", (T_PATCHER, FT_ALL_KL),
          _above("ER", T_PATCHER, FT_ALL_KL, 0.05)),
    Claim("T-Patcher makes fewer edits than f0 makes mistakes", (T_PATCHER,),
          _edits(T_PATCHER, fewer=True)),
    Claim("FT(all)+KL makes more", (FT_ALL_KL,), _edits(FT_ALL_KL, fewer=False)),
    Claim("SERA makes more", (SERA,), _edits(SERA, fewer=False)),
    Claim("T-Patcher keeps more of the model than SERA", (T_PATCHER, SERA),
          _above("TestR", T_PATCHER, SERA)),
)  # fmt: skip
TABLE3 = (
    Claim("Without l_m the model is hurt severely", (WITHOUT_LM, T_PATCHER),
          _above("TrainR", T_PATCHER, WITHOUT_LM, 0.05)),
    Claim("… and generality is highest", ALTERNATIVES, _largest("GR", WITHOUT_LM, ALTERNATIVES)),
    Claim("KL alleviates this only in part", ALTERNATIVES, _above("TrainR", KL_PATCH, WITHOUT_LM)),
    Claim("l_m1 does most, l_m2 still improves", (WITHOUT_LM2, T_PATCHER),
          _above("ER", T_PATCHER, WITHOUT_LM2)),
)  # fmt: skip
TABLE4 = (
    Claim("Without l_m the activation by the edit itself is highest", ALTERNATIVES,
          _largest("Edit", WITHOUT_LM, ALTERNATIVES)),
    Claim("The memory loss turns patches off elsewhere", (T_PATCHER,),
          _silent_elsewhere(T_PATCHER)),
    Claim("The KL patch has the lowest activation by the edit", (KL_PATCH, T_PATCHER),
          _above("Edit", T_PATCHER, KL_PATCH)),
)  # fmt: skip
TABLE5 = (
    Claim("T-Patcher deviates least", (T_PATCHER, *FINE_TUNED, WITHOUT_LM, KL_PATCH), _steadiest),
)
TABLE6 = (Claim("A fixed memory costs little ER", (FIXED_MEMORY, T_PATCHER), _slight_decline),)
FIGURE4 = (
    Claim("MEND works at first, but soon no longer", (MEND,), _first_then_not(MEND)),
    Claim("KE works at first, but soon no longer", (KE,), _first_then_not(KE)),
)
FIGURE6 = (
    Claim("Generality is highest in the last layer", (layer(-1), layer(-2)), _last_layer_best),
    Claim("The size of the memory matters little", (), _size_insensitive),
)
FIGURE7 = (
    Claim("T-Patcher keeps the model, the others wear it down", (T_PATCHER, KE, MEND, FT_ALL_KL),
          _keeps_model),
)  # fmt: skip
FRONTIER = (
    Claim("The fast preset is not behind the paper's (beyond the paper)", (FAST, beta(-3.0)),
          _same_frontier),
)  # fmt: skip


def keeps(row: Row, bar: float) -> Claim:
    """An editor fixes every mistake, and keeps its edits and the model."""
    bars = dict.fromkeys(KEPT, bar)
    return Claim(
        f"{row.label} fixes every mistake and keeps the model", (row,), _reaches(row, bars)
    )
