"""The tables and figures of the paper, and two of our own."""

from collections.abc import Sequence

from tpatcher.bench import claims, rows
from tpatcher.bench.report import figures
from tpatcher.bench.report.figures import Picture
from tpatcher.bench.rows import Row
from tpatcher.bench.scale import Scale
from tpatcher.bench.setup import PAPER_BETAS, Setup
from tpatcher.bench.table import FIRST, WHOLE, Table
from tpatcher.errors import unknown

CROSSINGS = (0.2, 0.35, 0.5, 0.65, 0.8)
BETAS = (-1.0, -3.0, -5.0)


def _layers_and_sizes(setup: Setup, scale: Scale) -> tuple[Row, ...]:
    layers = [rows.layer(i - setup.n_layers) for i in range(setup.n_layers)]
    return (*layers, *map(rows.memory, scale.memory_sizes))


def _crossings_and_betas(setup: Setup, scale: Scale) -> tuple[Row, ...]:
    betas = [rows.beta(b, setup.beta) for b in BETAS]
    if setup.beta not in PAPER_BETAS:
        betas.append(rows.beta(setup.beta, setup.beta))
    return (rows.FAST, rows.T_PATCHER, *map(rows.crossing, CROSSINGS), *betas)


COMPARED = (*rows.EDITORS, *rows.ABLATIONS)
NOT_THE_PAPERS = (
    "KE + loop, SERAC, the cache, GRACE, LoRA and the fast preset of T-Patcher are not in the "
    "paper's tables."
)
WITHOUT_MEMORY_LOSS = (rows.WITHOUT_LM, rows.KL_PATCH, *rows.OURS)
RETENTION_AND_COUNTS = (*figures.METRICS, "E", "N")
E_AND_N = "E edits were made; the initial model makes N mistakes on the same stream."
ALL = (
    Table(
        "table1", "Table 1. The five metrics of every editor", rows.EDITORS, claims=claims.TABLE1,
        about="SR over all edits and GR over all their rephrasings, the others averaged over the "
        f"folders. {NOT_THE_PAPERS}",
    ),
    Table(
        "table2", "Table 2. The whole edit set as one stream, question answering", COMPARED, WHOLE,
        kinds=("qa",), columns=RETENTION_AND_COUNTS, claims=claims.WHOLE_STREAM,
        about=f"{E_AND_N} {NOT_THE_PAPERS}",
    ),
    Table(
        "table3", "Table 3. Alternatives to the memory loss",
        (rows.WITHOUT_LM, rows.KL_PATCH, rows.WITHOUT_LM2, *rows.OURS), claims=claims.TABLE3,
    ),
    Table(
        "table4", "Table 4. Absolute activations of the patches, mean ± deviation",
        WITHOUT_MEMORY_LOSS, FIRST, columns=("Edit", "Past-edit", "Random"),
        statistic="mean ± deviation", claims=claims.TABLE4,
        about="By the mistake that a patch was made for (of an answer's tokens, the one that the "
        "neuron responds to most), by those of earlier edits, and by "
        "mistakes of f0 in D_test. The neurons of the fast preset are steeper on purpose.",
    ),
    Table(
        "table5", "Table 5. Standard deviations over the folders",
        (*rows.EDITORS, *rows.ABLATIONS),
        columns=("ER", "TrainR", "TestR"),
        statistic="deviation", claims=claims.TABLE5,
    ),
    Table(
        "table6", "Table 6. A fixed memory", (rows.FIXED_MEMORY, rows.T_PATCHER),
        claims=claims.TABLE6,
        about="Past edits are left out of the memory; below it, the same with them.",
    ),
    Table(
        "table7", "Table 7. The whole edit set as one stream", COMPARED, WHOLE,
        columns=RETENTION_AND_COUNTS, claims=claims.WHOLE_STREAM,
        about=f"{E_AND_N} {NOT_THE_PAPERS}",
    ),
    Table(
        "figure4", "Figure 4. Success rate over the number of edits", rows.EDITORS, FIRST,
        columns=(), pictures=(Picture(figures.successes, size="single"),), claims=claims.FIGURE4,
        about="The share of edits so far that fixed their mistake, in folder 0.",
    ),
    Table(
        "figure5", "Figure 5. Activation of each patch by each mistake", WITHOUT_MEMORY_LOSS, FIRST,
        columns=(), pictures=(Picture(figures.heats),),
        about="A patch that answers for its own mistake only shows the diagonal.",
    ),
    Table(
        "figure6", "Figure 6. The patched layer, and the size of the memory", _layers_and_sizes,
        FIRST, kinds=("qa",), pictures=(Picture(figures.sweeps),), claims=claims.FIGURE6,
        about="In the paper GR rises from 0.74 in layer 2 to 0.81 in layer 5, the last; memories "
        "of 5,000 to 40,000 examples differ little.",
    ),
    Table(
        "figure7", "Figure 7. What is retained over the number of edits",
        (rows.KE, rows.KE_LOOP, rows.MEND, rows.FT_ALL_KL, *rows.OURS), FIRST, columns=(),
        pictures=(Picture(figures.curves),), claims=claims.FIGURE7,
    ),
    Table(
        "costs", "What an edit takes, and what it leaves behind",
        (*rows.EDITORS, rows.FEW_MEMORIES),
        columns=("seconds", "megabytes", "kilobytes", "growth"),
        about="The paper's seconds are on a V100 with 40,000 memories, or 10,000; its growth is "
        "that of the whole edit set. Megabytes: by how much the process grew during "
        "an edit at most; what earlier ones freed is used again. Kilobytes are those of a patch.",
    ),
    Table(
        "frontier", "Beyond the paper: generality against retention", _crossings_and_betas, FIRST,
        columns=("GR", "TestR"), pictures=(Picture(figures.frontier, size="single"),),
        claims=claims.FRONTIER,
        about="The fast preset by where the neuron begins to fire (f), the paper's by how far "
        "below zero the memory is pushed (β).",
    ),
)  # fmt: skip
TABLES = {table.name: table for table in ALL}


def tables_named(names: Sequence[str]) -> list[Table]:
    """The tables and figures of these names, in the paper's order; "all", or none, is every one."""
    for name in names:
        if name not in TABLES and name != "all":
            raise unknown("table", name, [*TABLES, "all"])
    return [t for t in ALL if not names or "all" in names or t.name in names]


def rows_named(names: Sequence[str]) -> list[Row]:
    """The rows of these names."""
    for name in names:
        if name not in rows.ROWS:
            raise unknown("row", name, rows.ROWS)
    return [rows.ROWS[name] for name in names]
