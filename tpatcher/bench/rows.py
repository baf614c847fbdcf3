"""The rows of the paper's tables: an editor with its settings, and a name for both."""

from dataclasses import dataclass, field, replace
from typing import Any

LAYER, MEMORY = "patched layer, from the end", "memory examples"
CROSSING, BETA = "fast, by f", "paper, by β"


@dataclass(frozen=True, eq=False)
class Row:
    """One line of a table; within a table it is known by its name."""

    name: str  # in files, in the paper's numbers and on the command line
    label: str  # for people
    editor: str
    fields: dict[str, Any] = field(default_factory=dict)  # besides the scale's
    memory_size: int | None = None  # None: the scale's
    measure_every: int | None = None  # in a stream without folders
    ours: bool = False  # to be set off from the others
    sweep: str = ""  # the setting that changes from row to row, and its value in this one
    value: float = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def paper(**fields: Any) -> dict[str, Any]:
    """T-Patcher's fields for the paper's solver."""
    return {"solver": {"name": "paper", **fields}}


FT_LAST = Row("ft-last", "FT(last)", "ft-last")
FT_ALL = Row("ft-all", "FT(all)", "ft-all")
FT_LAST_KL = Row("ft-last-kl", "FT(last)+KL", "ft-last-kl")
FT_ALL_KL = Row("ft-all-kl", "FT(all)+KL", "ft-all-kl")
MEND = Row("mend", "MEND", "mend")
KE = Row("ke", "KE", "ke", {"loops": 1})
KE_LOOP = Row("ke-loop", "KE + loop", "ke", {"loops": 5})
SERA = Row("sera", "SERA", "sera")
SERAC = Row("serac", "SERAC", "serac")
CACHE = Row("cache", "Cache", "cache")
GRACE = Row("grace", "GRACE", "grace")
LORA = Row("lora", "LoRA", "lora")
T_PATCHER = Row("t-patcher", "T-Patcher", "t-patcher", paper(), ours=True)
FAST = Row("t-patcher-fast", "T-Patcher, fast", "t-patcher", ours=True)
TEXT = Row(
    "t-patcher-text", "T-Patcher, text", "t-patcher", {"solver": {"name": "text"}}, ours=True
)
WITHOUT_LM = Row("without-lm", "w/o l_m", "t-patcher", paper(use_lm1=False, use_lm2=False))
KL_PATCH = Row("kl-patch", "KL", "t-patcher", paper(kl=True))
WITHOUT_LM2 = Row("without-lm2", "w/o l_m2", "t-patcher", paper(use_lm2=False))
FIXED_MEMORY = Row("fixed-memory", "T-Patcher, fixed memory", "t-patcher", paper(fixed_memory=True))

FINE_TUNED = (FT_LAST, FT_ALL, FT_LAST_KL, FT_ALL_KL)
OURS = (T_PATCHER, FAST, TEXT)
EDITORS = (*FINE_TUNED, MEND, KE, KE_LOOP, SERA, SERAC, CACHE, GRACE, LORA, *OURS)
ABLATIONS = (WITHOUT_LM, KL_PATCH, WITHOUT_LM2, FIXED_MEMORY)


# What is the default is left out of a swept row's fields, so that its job is the plain row's.
def layer(i: int) -> Row:
    """T-Patcher in another layer, counted from the end."""
    fields = paper() if i == -1 else paper() | {"layer": i}
    return Row(f"layer:{i}", f"layer {i}", "t-patcher", fields, sweep=LAYER, value=i)


def memory(size: int) -> Row:
    """T-Patcher with a memory of another size."""
    name, label = f"memory:{size}", f"memory {size}"
    return Row(name, label, "t-patcher", paper(), memory_size=size, sweep=MEMORY, value=size)


def crossing(f: float) -> Row:
    """The fast preset with neurons that begin to fire elsewhere."""
    fields = {"solver": {"name": "fast", "crossing": f}}
    return Row(f"crossing:{f}", f"f = {f}", "t-patcher", fields, sweep=CROSSING, value=f)


def beta(b: float, own: float = -3.0) -> Row:
    """The paper's preset with the memory pushed to another depth than the activation's own β."""
    fields = paper() if b == own else paper(beta=b)
    return Row(f"beta:{b}", f"β = {b}", "t-patcher", fields, sweep=BETA, value=b)


FEW_MEMORIES = replace(memory(10_000), label="T-Patcher, 10,000 memories")  # of Section 5.2
ROWS = {row.name: row for row in (*EDITORS, *ABLATIONS, FEW_MEMORIES)}
