"""What the paper claims, as checks of our own numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpatcher.bench.experiments import FT, LABELS
from tpatcher.bench.results import Line, Sheet

KEPT = ("SR", "ER", "TrainR", "TestR")


@dataclass(frozen=True)
class Checked:
    """A claim, whether our numbers bear it out (None: not all of them are there), and they."""

    text: str
    holds: bool | None
    numbers: str

    @property
    def sign(self) -> str:
        return {True: "✓", False: "✗", None: "·"}[self.holds]


Rows = dict[str, Line]
Check = Callable[[Rows], tuple[bool, str]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and the predicate over the rows that it comes down to."""

    text: str
    needs: Sequence[str]
    check: Check
    tasks: Sequence[str] = ("fc", "qa")


def at(rows: Rows, row: str, metric: str) -> float:
    return rows[row].numbers[metric][0]


def said(rows: Rows, metric: str, *names: str) -> str:
    """The numbers behind a verdict."""
    return ", ".join(f"{LABELS.get(n, n)} {at(rows, n, metric):.3f}" for n in names)


def above(metric: str, high: str, low: str, by: float = 0.0) -> Check:
    """One row has more of a metric than another; a tie bears nothing out."""

    def check(rows: Rows) -> tuple[bool, str]:
        return (at(rows, high, metric) > at(rows, low, metric) + by,
                f"{metric}: {said(rows, metric, high, low)}")  # fmt: skip

    return check


def largest(metric: str, row: str, among: Sequence[str]) -> Check:
    """No other row has more of a metric."""

    def check(rows: Rows) -> tuple[bool, str]:
        best = max(at(rows, r, metric) for r in among)
        return at(rows, row, metric) >= best, f"{metric}: {said(rows, metric, *among)}"

    return check


def holds_all(row: str) -> Check:
    def check(rows: Rows) -> tuple[bool, str]:
        numbers = {m: at(rows, row, m) for m in ("GR", *KEPT)}
        kept = all(numbers[m] >= 0.98 for m in KEPT) and numbers["GR"] >= 0.7
        return kept, ", ".join(f"{m} {v:.3f}" for m, v in numbers.items())

    return check


def forgets(rows: Rows) -> tuple[bool, str]:
    fixed = all(at(rows, r, "SR") >= 0.99 for r in FT)
    return fixed and all(at(rows, r, "ER") <= 0.9 for r in FT), f"ER: {said(rows, 'ER', *FT)}"


def collapses(row: str) -> Check:
    def check(rows: Rows) -> tuple[bool, str]:
        low = at(rows, row, "SR") < 0.9 and at(rows, row, "TrainR") < 0.9
        return low, f"SR {at(rows, row, 'SR'):.3f}, TrainR {at(rows, row, 'TrainR'):.3f}"

    return check


def edits(row: str, fewer: bool) -> Check:
    """Whether an editor makes fewer edits than f0 makes mistakes, or at least as many."""

    def check(rows: Rows) -> tuple[bool, str]:
        E, N = at(rows, row, "E"), at(rows, row, "N")
        return (E < N if fewer else E >= N), f"E {E:.0f}, N {N:.0f}"

    return check


def dark(row: str) -> Check:
    def check(rows: Rows) -> tuple[bool, str]:
        past, other = at(rows, row, "Past-edit"), at(rows, row, "Random")
        own = at(rows, row, "Edit")
        return (max(past, other) <= 0.05 * own,
                f"Edit {own:.2f}, Past-edit {past:.3f}, Random {other:.3f}")  # fmt: skip

    return check


def steadiest(rows: Rows) -> tuple[bool, str]:
    names = [*FT, "without-lm", "kl-patch"]
    ours = {m: rows["t-patcher"].numbers[m][1] for m in ("ER", "TrainR", "TestR")}
    least = {m: min(rows[n].numbers[m][1] for n in names) for m in ours}
    told = ", ".join(f"{m} {ours[m]:.4f} (others from {least[m]:.4f})" for m in ours)
    return all(ours[m] <= least[m] for m in ours), told


def slight_decline(rows: Rows) -> tuple[bool, str]:
    fall = at(rows, "t-patcher", "ER") - at(rows, "fixed-memory", "ER")
    return -0.02 <= fall <= 0.05, f"ER: {said(rows, 'ER', 'fixed-memory', 't-patcher')}"


def first_then_not(row: str) -> Check:
    """Effective in the first few steps, but shortly after no longer."""

    def check(rows: Rows) -> tuple[bool, str]:
        fixed = [step.fixed for step in rows[row].results[0].steps]
        half = max(1, len(fixed) // 2)
        late = sum(fixed[half:]) / max(1, len(fixed) - half)
        return fixed[0] and late < 0.5, f"first edit {fixed[0]}, later half {late:.2f}"

    return check


def worn(rows: Rows) -> tuple[bool, str]:
    others = ("ke", "mend", "ft-all-kl")
    ours = at(rows, "t-patcher", "TrainR")
    most = max(at(rows, r, "TrainR") for r in others)
    return ours >= 0.98 and most < ours, f"TrainR: {said(rows, 'TrainR', 't-patcher', *others)}"


def layers(rows: Rows) -> tuple[bool, str]:
    found = sorted((r for r in rows if r.startswith("layer:")), key=lambda r: int(r[6:]))
    told = ", ".join(f"{rows[r].label} {at(rows, r, 'GR'):.3f}" for r in found)
    return at(rows, found[-1], "GR") > max(at(rows, r, "GR") for r in found[:-1]), f"GR: {told}"


def sizes(rows: Rows) -> tuple[bool, str]:
    found = [r for r in rows if r.startswith("memory:")]
    spread = {m: max(at(rows, r, m) for r in found) - min(at(rows, r, m) for r in found)
              for m in KEPT}  # fmt: skip
    return max(spread.values()) <= 0.05, ", ".join(f"{m} within {v:.3f}" for m, v in spread.items())


def same_frontier(rows: Rows) -> tuple[bool, str]:
    ours, paper = rows["t-patcher-fast"].numbers, rows["beta:-3.0"].numbers
    told = (f"GR {ours['GR'][0]:.3f} and {paper['GR'][0]:.3f}, "
            f"TestR {ours['TestR'][0]:.4f} and {paper['TestR'][0]:.4f}")  # fmt: skip
    return (ours["GR"][0] >= paper["GR"][0] - 0.02
            and ours["TestR"][0] >= paper["TestR"][0] - 0.005), told  # fmt: skip


TP, FAST = "t-patcher", "t-patcher-fast"
WHOLE = (
    Claim("T-Patcher keeps more of its edits than FT(all)+KL", (TP, "ft-all-kl"),
          above("ER", TP, "ft-all-kl", 0.05)),
    Claim("T-Patcher makes fewer edits than f0 makes mistakes", (TP,), edits(TP, fewer=True)),
    Claim("FT(all)+KL makes more", ("ft-all-kl",), edits("ft-all-kl", fewer=False)),
    Claim("SERA makes more", ("sera",), edits("sera", fewer=False)),
    Claim("T-Patcher keeps more of the model than SERA", (TP, "sera"), above("TestR", TP, "sera")),
)  # fmt: skip
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "table1": (
        Claim("T-Patcher holds all five metrics", (TP,), holds_all(TP)),
        Claim("so does its fast preset", (FAST,), holds_all(FAST)),
        Claim("Fine-tuning fixes every mistake but forgets past edits", FT, forgets),
        Claim("… more with the last layer than with all", ("ft-last", "ft-all"),
              above("ER", "ft-all", "ft-last")),
        Claim("The KL term keeps more of the model", ("ft-all", "ft-all-kl"),
              above("TrainR", "ft-all-kl", "ft-all")),
        Claim("MEND collapses", ("mend",), collapses("mend")),
        Claim("KE collapses", ("ke",), collapses("ke")),
        Claim("SERA has the highest GR", ("sera", TP, *FT),
              largest("GR", "sera", ("sera", TP, *FT))),
        Claim("SERA keeps less of the model than T-Patcher", ("sera", TP),
              above("TestR", TP, "sera", 0.005)),
    ),
    "table2": WHOLE,
    "table3": (
        Claim("Without l_m the model is hurt severely", ("without-lm", TP),
              above("TrainR", TP, "without-lm", 0.05)),
        Claim("… and generality is highest", ("without-lm", "kl-patch", TP),
              largest("GR", "without-lm", ("without-lm", "kl-patch", TP))),
        Claim("KL alleviates this only in part", ("without-lm", "kl-patch", TP),
              above("TrainR", "kl-patch", "without-lm")),
        Claim("l_m1 does most, l_m2 still improves", ("without-lm2", TP),
              above("ER", TP, "without-lm2")),
    ),
    "table4": (
        Claim("Without l_m the activation by the edit itself is highest",
              ("without-lm", "kl-patch", TP), largest("Edit", "without-lm",
              ("without-lm", "kl-patch", TP))),
        Claim("The memory loss turns patches off elsewhere", (TP,), dark(TP)),
        Claim("The KL patch has the lowest activation by the edit", ("kl-patch", TP),
              above("Edit", TP, "kl-patch")),
    ),
    "table5": (Claim("T-Patcher deviates least", (TP, *FT, "without-lm", "kl-patch"), steadiest),),
    "table6": (Claim("A fixed memory costs little ER", ("fixed-memory", TP), slight_decline),),
    "table7": WHOLE,
    "figure4": (
        Claim("MEND works at first, but soon no longer", ("mend",), first_then_not("mend")),
        Claim("KE works at first, but soon no longer", ("ke",), first_then_not("ke")),
    ),
    "figure6": (
        Claim("Generality is highest in the last layer", ("layer:-1", "layer:-2"), layers),
        Claim("The size of the memory matters little", (), sizes),
    ),
    "figure7": (
        Claim("T-Patcher keeps the model, the others wear it down",
              (TP, "ke", "mend", "ft-all-kl"), worn),
    ),
    "frontier": (
        Claim("The fast preset is not behind the paper's (beyond the paper)",
              (FAST, "beta:-3.0"), same_frontier),
    ),
}  # fmt: skip


def checked(sheet: Sheet) -> list[Checked]:
    """The claims about a table, each with its verdict."""
    rows, out = sheet.by_row, []
    for claim in CLAIMS.get(sheet.name, ()):
        if sheet.task.kind not in claim.tasks:
            continue
        if not rows or any(row not in rows for row in claim.needs):
            out.append(Checked(claim.text, None, "not all of the jobs are complete"))
        else:
            holds, numbers = claim.check(rows)
            out.append(Checked(claim.text, bool(holds), numbers))
    return out
