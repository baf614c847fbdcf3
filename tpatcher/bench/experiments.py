"""Each table and figure of the paper as a list of jobs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tpatcher.bench.job import Job
from tpatcher.bench.scale import Scale, trained
from tpatcher.errors import BadInput
from tpatcher.models.loading import load

Stream = Literal["all folders", "folder 0", "the whole edit set"]
FOLDERS: Stream = "all folders"
FIRST: Stream = "folder 0"
WHOLE: Stream = "the whole edit set"

FT = ("ft-last", "ft-all", "ft-last-kl", "ft-all-kl")
OURS = ("t-patcher", "t-patcher-fast")
ABLATIONS = ("without-lm", "kl-patch", "without-lm2")
CROSSINGS = (0.2, 0.35, 0.5, 0.65, 0.8)
BETAS = (-1.0, -3.0, -5.0)

LABELS = {
    "ft-last": "FT(last)", "ft-all": "FT(all)", "ft-last-kl": "FT(last)+KL",
    "ft-all-kl": "FT(all)+KL", "mend": "MEND", "ke": "KE", "sera": "SERA", "grace": "GRACE",
    "lora": "LoRA", "t-patcher": "T-Patcher", "t-patcher-fast": "T-Patcher, fast",
    "without-lm": "w/o l_m", "kl-patch": "KL", "without-lm2": "w/o l_m2",
    "fixed-memory": "T-Patcher, fixed memory",
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One of the two tasks: a model and its data."""

    kind: Literal["fc", "qa"]
    data: str
    model: str
    path: Path | None = None
    without: Path | None = None

    @property
    def title(self) -> str:
        what = "Fact checking" if self.kind == "fc" else "Question answering"
        return f"{what}: {self.data}"


@dataclass(frozen=True)
class Table:
    """A table or figure: the rows it compares, and on which stream."""

    title: str
    rows: tuple[str, ...] = ()
    stream: Stream = FOLDERS
    tasks: tuple[str, ...] = ("fc", "qa")
    shows: tuple[str, ...] = ("SR", "GR", "ER", "TrainR", "TestR")
    about: str = ""


ALL_EDITORS = (*FT, "mend", "ke", "sera", "grace", "lora", *OURS)
COMPARED = ("ft-all-kl", "sera", *OURS)
STREAM = ("SR", "GR", "ER", "TrainR", "TestR", "E", "N")
TABLES = {
    "table1": Table(
        "Table 1. The five metrics of every editor",
        ALL_EDITORS,
        about="SR and GR over all edits, the others averaged over the folders. GRACE, LoRA and the "
        "fast preset of T-Patcher are not in the paper.",
    ),
    "table2": Table(
        "Table 2. The whole edit set as one stream, question answering",
        COMPARED, WHOLE, ("qa",), STREAM,
        about="E edits were made; the initial model makes N mistakes on the same stream.",
    ),
    "table3": Table("Table 3. Alternatives to the memory loss", (*ABLATIONS, *OURS)),
    "table4": Table(
        "Table 4. Absolute activations of the patches, mean ± deviation",
        ("without-lm", "kl-patch", *OURS), FIRST, shows=("Edit", "Past-edit", "Random"),
        about="By the mistake that a patch was made for, by those of earlier edits, and by "
        "mistakes of f0 in D_test. The neurons of the fast preset are steeper on purpose.",
    ),
    "table5": Table(
        "Table 5. Standard deviations over the folders",
        (*FT, *OURS, "without-lm", "kl-patch"), shows=("ER", "TrainR", "TestR"),
    ),
    "table6": Table(
        "Table 6. A fixed memory", ("fixed-memory", "t-patcher"),
        about="Past edits are left out of the memory; below it, the same with them.",
    ),
    "table7": Table(
        "Table 7. The whole edit set as one stream", COMPARED, WHOLE, shows=STREAM,
        about="E edits were made; the initial model makes N mistakes on the same stream.",
    ),
    "figure4": Table(
        "Figure 4. Success rate over the number of edits", ALL_EDITORS, FIRST, shows=(),
        about="The share of edits so far that fixed their mistake, in folder 0.",
    ),
    "figure5": Table(
        "Figure 5. Activation of each patch by each mistake",
        ("without-lm", "kl-patch", *OURS), FIRST, shows=(),
        about="A patch that answers for its own mistake only shows the diagonal.",
    ),
    "figure6": Table(
        "Figure 6. The patched layer, and the size of the memory", (), FIRST, ("qa",),
        about="In the paper GR rises from 0.74 in layer 2 to 0.81 in layer 5, the last; memories "
        "of 5,000 to 40,000 examples differ little.",
    ),
    "figure7": Table(
        "Figure 7. What is retained over the number of edits",
        ("ke", "mend", "ft-all-kl", *OURS), FIRST, shows=(),
    ),
    "costs": Table(
        "What an edit takes, and what it leaves behind", ALL_EDITORS,
        shows=("seconds", "megabytes", "kilobytes", "growth"),
        about="The paper's seconds are on a V100 with 40,000 memories (with 10,000: 4.7 and 12.4); "
        "its growth is that of the whole edit set. Megabytes: by how much the process grew during "
        "an edit at most; what earlier ones freed is used again. Kilobytes are those of a patch.",
    ),
    "frontier": Table(
        "Beyond the paper: generality against retention", (), FIRST, shows=("GR", "TestR"),
        about="The fast preset by where the neuron begins to fire (f), the paper's by how far "
        "below zero the memory is pushed (β).",
    ),
}  # fmt: skip


def asked(names: Sequence[str]) -> list[str]:
    """The tables and figures of these names; "all" is every one."""
    unknown = [n for n in names if n not in (*TABLES, "all")]
    if unknown:
        raise BadInput(f"Unknown table {unknown[0]!r}. Available: {', '.join(TABLES)}, all")
    return list(TABLES) if not names or "all" in names else [n for n in TABLES if n in names]


def skipped(names: Sequence[str]) -> list[str]:
    """Rows to leave out, if they are some."""
    if unknown := [n for n in names if n not in LABELS]:
        raise BadInput(f"Unknown row {unknown[0]!r}. Available: {', '.join(LABELS)}")
    return list(names)


def rows(name: str, task: Task, scale: Scale) -> list[str]:
    """The rows of a table; those of some depend on the model and on the scale."""
    if name == "figure6":
        layers = [f"layer:{i - depth(task.model)}" for i in range(depth(task.model))]
        return [*layers, *(f"memory:{n}" for n in scale.memories)]
    if name == "frontier":
        swept = [*(f"crossing:{f}" for f in CROSSINGS), *(f"beta:{b}" for b in BETAS)]
        return ["t-patcher-fast", *swept]
    return list(TABLES[name].rows)


def jobs(row: str, task: Task, scale: Scale, stream: Stream) -> list[Job]:
    """The jobs whose results a row summarises."""
    editor, fields, memory = made(row, scale)
    base: dict[str, Any] = {
        "model": task.model, "data": task.data, "editor": editor, "fields": fields,
        "path": task.path, "without": task.without, "tr": scale.tr, "test": scale.test,
        "memory": memory,
    }  # fmt: skip
    if stream == WHOLE:
        return [Job(**base, edits=scale.whole[task.kind])]
    base |= {"folders": scale.folders, "edits": scale.edits[task.kind]}
    count = scale.folders if stream == FOLDERS else 1
    # curves are shown of folder 0: what is retained is not measured as often in the others
    return [Job(**base, folder=i, every=scale.every if i == 0 else None) for i in range(count)]


def made(row: str, scale: Scale) -> tuple[str, dict[str, Any], int]:
    """The editor behind a row's name, its fields, and the size of the memory."""
    kind, _, value = row.partition(":")
    if kind in FT:
        fields: dict[str, Any] = {"learning_rate": scale.learning_rate}
        return row, fields | ({"kl_batch": scale.kl_batch} if "kl" in kind else {}), scale.memory
    if kind in ("mend", "ke", "sera"):
        return row, trained(row, scale.quick_fits), scale.memory
    if kind in ("grace", "lora"):
        return row, {}, scale.memory
    memory = int(value) if kind == "memory" else scale.memory
    return "t-patcher", patcher(kind, value), memory


def patcher(kind: str, value: str) -> dict[str, Any]:
    """T-Patcher's fields; what is the default is left out, so that it is the plain row's job."""
    paper: dict[str, Any] = {"preset": "paper"}
    match kind, value:
        case "t-patcher-fast", _:
            return {"preset": "fast"}
        case "crossing", f:
            return {"preset": "fast", "settings": {"crossing": float(f)}}
        case "without-lm", _:
            return paper | {"schedule": {"use_lm1": False, "use_lm2": False}}
        case "without-lm2", _:
            return paper | {"schedule": {"use_lm2": False}}
        case "kl-patch", _:
            return paper | {"kl_patch": True}
        case "fixed-memory", _:
            return paper | {"fixed_memory": True}
        case "layer", layer if layer != "-1":
            return paper | {"layer": int(layer)}
        case "beta", beta if beta != "-3.0":
            return paper | {"schedule": {"beta": float(beta)}}
    return paper


def label(row: str) -> str:
    """A row's name for people."""
    kind, _, value = row.partition(":")
    named = {"layer": f"layer {value}", "memory": f"memory {value}", "crossing": f"f = {value}",
             "beta": f"β = {value}"}  # fmt: skip
    return LABELS.get(row) or named[kind]


Plan = dict[str, dict[Task, dict[str, list[Job]]]]


def plan(
    names: Iterable[str], tasks: Sequence[Task], scale: Scale, skip: Collection[str] = ()
) -> Plan:
    """Table → task → row → jobs. The same job may stand in several tables."""
    out: Plan = {}
    for name in names:
        table = TABLES[name]
        # a figure that the paper has for one task only is made of the other if that is alone
        on = [t for t in tasks if t.kind in table.tasks] or list(tasks)
        out[name] = {
            t: {
                row: jobs(row, t, scale, table.stream)
                for row in rows(name, t, scale)
                if row not in skip
            }
            for t in on
        }
    return out


@cache
def depth(model: str) -> int:
    """How many layers of a model could be patched."""
    return load(model).n_layers
