"""The main job: sequential model editing on both built-in tasks, in a few minutes on two cores."""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tpatcher import files, sme
from tpatcher.bench import activations, published
from tpatcher.bench.published import METRICS
from tpatcher.bench.report.demo_html import Row, Section, html
from tpatcher.bench.report.figures import curves, heat
from tpatcher.data import DATASETS
from tpatcher.editors import EDITORS, Editor
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache

BUILTIN = {
    "builtin-fc": "Fact checking: is a claim true? A small BERT-like classifier.",
    "builtin-qa": "Closed-book question answering. A small BART-like encoder-decoder.",
}
# the built-in models are tiny and were trained at 1e-3; the paper's 1e-5 would take all day
COMPARED: dict[str, dict[str, Any]] = {"t-patcher": {}, "ft-all": {"learning_rate": 1e-4}}
RETAINED = 1_000  # examples of D_tr, and of D_test
ABOUT = "Every mistake of a stream is fixed as it comes, and what is kept is measured."
BARS = {"SR": 0.99, "ER": 0.99, "TrainR": 0.99, "TestR": 0.99}


def demo(
    console: Console, report: Path, numbers: Path | None = None, edits: int = 60, seed: int = 0
) -> bool:
    """Run it all, show and write the results; whether T-Patcher met its bars."""
    torch.manual_seed(seed)
    sections, results, met = [], {}, True
    with Progress(
        TextColumn("{task.description:34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console,
    ) as progress:  # fmt: skip
        for name, about in BUILTIN.items():
            rows, figures, task = _task(name, progress, edits, seed)
            sections.append(Section(name, about, task, rows, figures))
            results[name] = {row.editor: _numbers(row) for row in rows}
            met = met and all(results[name]["t-patcher"][m] >= bar for m, bar in BARS.items())
    for section in sections:
        console.print(_shown(section))
    page = html(
        "tpatcher demo", ABOUT,
        "tpatcher demo", sections,
    )  # fmt: skip
    files.replace(report, page.encode())
    console.print(f"The report is in [bold]{report}[/].")
    if numbers is not None:
        files.replace(numbers, json.dumps(results, indent=1).encode())
    if not met:
        console.print(f"[red]T-Patcher missed a bar: {BARS}[/]")
    return met


def _task(
    name: str, progress: Progress, edits: int, seed: int
) -> tuple[list[Row], list[tuple[str, str]], str]:
    """Both editors on one task: rows of the table, and figures."""
    base = load(name)
    split = DATASETS[name](seed=seed)
    d_tr, memory = split.retained(tr=RETAINED, memory=split_memory(name), seed=seed)
    test = Random(seed).sample(list(split.test), RETAINED)
    stream = mistakes(base, split.edit, edits, seed)
    look = progress.add_task(f"{name}: looking", total=2 + len(COMPARED))
    retain: dict[str, Any] = {}
    for key, examples in (("train", d_tr), ("test", test)):
        retain[key] = AnswerCache(base, examples)
        progress.advance(look)
    rows, figures = [], []
    for kind, knobs in COMPARED.items():
        model = base.twin()
        editor: Editor = EDITORS[kind](**knobs).fit(model, memory)
        progress.advance(look)
        bar = progress.add_task(f"{name}: {kind}", total=len(stream))
        steps = []
        # fine-tuning changes the whole model, so what it retains has to be really run
        every = 1 if kind == "t-patcher" else max(1, len(stream) // 3)
        for step in sme.run(model, editor, stream, retain, every=every):
            steps.append(step)
            progress.update(bar, completed=step.index + 1)
        progress.update(bar, completed=len(stream))
        rows.append(Row(kind, sme.score(steps, len(stream)), steps))
        if kind == "t-patcher":
            found = activations.measure(model, [])
            if found is not None:
                values = torch.tensor(found["heat"])
                figures.append(("How strongly each patch responds to each mistake", heat(values)))
    figures.insert(
        0, ("What is retained, over the number of edits", curves({r.editor: r.steps for r in rows}))
    )
    return rows, figures, base.task.name


def split_memory(name: str) -> int:
    """Memory examples: a question has several answer positions, a claim has one."""
    return 25_000 if name == "builtin-fc" else 6_000


def mistakes(model: Model, examples: Any, most: int, seed: int) -> list[Example]:
    """The first so many mistakes of the unedited model, in a seeded order."""
    stream = list(examples)
    Random(seed).shuffle(stream)
    right = model.correct(stream)
    return [e for e, ok in zip(stream, right, strict=True) if not ok][:most]


def _numbers(row: Row) -> dict[str, float]:
    out: dict[str, float] = {m: round(getattr(row.scores, m), 4) for m in METRICS}
    return {**out, "edits": row.scores.E, "seconds_per_edit": round(row.scores.seconds_per_edit, 4)}


def _shown(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left")
    table.add_column("editor")
    for name in (*METRICS, "edits", "s per edit"):
        table.add_column(name, justify="right")
    for row in section.rows:
        cells = [f"{getattr(row.scores, m):.3f}" for m in METRICS]
        table.add_row(row.editor, *cells, str(row.scores.E), f"{row.scores.seconds_per_edit:.3f}")
        paper = published.row(row.editor, section.task)
        if paper:
            table.add_row("  in the paper", *(f"{paper[m]:.3f}" for m in METRICS), style="dim")
    return table
