"""Research: sequential model editing, its tables, and the models it begins with."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tpatcher.cli.common import Device, ModelName, Preset, app, console, logging_off


@app.command()
def demo(
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report.html"),
    as_json: Annotated[Path | None, typer.Option("--json", help="Numbers as JSON.")] = None,
    edits: Annotated[int, typer.Option(help="Mistakes to fix per task.")] = 60,
) -> None:
    """Sequential model editing on both built-in tasks; needs nothing but this package."""
    from tpatcher.bench.demo import demo as run

    if not run(console, report, as_json, edits):
        raise typer.Exit(1)


@app.command()
def sme(
    model: ModelName,
    data: Annotated[
        str, typer.Option(help="builtin-fc, builtin-qa, fever, zsre, counterfact, own.")
    ],
    out: Annotated[Path, typer.Option(help="Where the runs go; a killed one is resumed.")],
    path: Annotated[Path | None, typer.Option(help="The dataset's folder or file.")] = None,
    without: Annotated[
        Path | None, typer.Option(help="Texts to keep out of D_test (zsre).")
    ] = None,
    traffic: Annotated[
        list[Path] | None,
        typer.Option(help="Unlabelled texts (.txt, .jsonl) to fill the memory with; repeatable."),
    ] = None,
    editor: Annotated[str, typer.Option(help="t-patcher, ft-all, …")] = "t-patcher",
    preset: Annotated[Preset | None, typer.Option(help="T-Patcher's.")] = None,
    knobs: Annotated[str, typer.Option(help="The editor's other fields, as JSON.")] = "{}",
    folders: Annotated[int, typer.Option(help="0: the whole edit set as one stream.")] = 0,
    folder: Annotated[int | None, typer.Option(help="Only this one of the folders.")] = None,
    edits: Annotated[
        int | None, typer.Option(help="A stream ends with so many mistakes of f0.")
    ] = None,
    most: Annotated[int | None, typer.Option(help="Only so many examples per stream.")] = None,
    tr: Annotated[
        int, typer.Option(help="Examples of D_tr, and at most as many of D_test.")
    ] = 10_000,
    test: Annotated[int | None, typer.Option(help="Examples of D_test, if not as many.")] = None,
    memory: Annotated[int, typer.Option(help="Memory examples.")] = 40_000,
    every: Annotated[
        int | None, typer.Option(help="Measure retention every so many edits.")
    ] = None,
    given: Annotated[int, typer.Option(help="Rephrasings shown to the editor.")] = 0,
    longer: Annotated[
        int, typer.Option(help="A longer stream: so many examples of D_test as well.", min=0)
    ] = 0,
    seed: int = 0,
    skip_bad: Annotated[bool, typer.Option(help="Count bad lines instead of stopping.")] = False,
    device: Device = None,
) -> None:
    """Sequential model editing on a dataset: the paper's five metrics."""
    from tpatcher.bench.job import Job
    from tpatcher.bench.run import run

    fields = json.loads(knobs) | ({"preset": preset} if preset else {})
    job = Job(
        model, data, editor, fields, path, without, tuple(traffic or ()), folders, folder or 0,
        edits, most, tr, test, memory, every, given, longer, seed, skip_bad,
    )  # fmt: skip
    logging_off()
    console.print_json(json.dumps(run(job, out, console, device, only=folder)))


@app.command()
def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="table1 … table7, figure4 … figure7, costs, frontier; all if none."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="builtin, fever, zsre or a path; twice for a report on both tasks."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="The initial model of each.")] = None,
    path: Annotated[list[Path] | None, typer.Option(help="The folder of each dataset.")] = None,
    without: Annotated[
        Path | None, typer.Option(help="Texts to keep out of D_test (zsre).")
    ] = None,
    scale: Annotated[
        Literal["small", "full"], typer.Option(help="A small part, or the paper's own scale.")
    ] = "small",
    edits: Annotated[
        int | None, typer.Option(help="Mistakes per folder; twice as many per whole stream.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Fine-tuning's learning rate, if not the scale's.")
    ] = None,
    tr: Annotated[
        int | None, typer.Option(help="Examples of D_tr and of D_test, if not the scale's.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Memory examples, if not as many as the scale's.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="A row to leave out, as ke or kl-patch; repeatable.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where jobs, tables and the report go; complete jobs are kept.")
    ] = Path("reproduction"),
    on: Annotated[str, typer.Option(help="here, ray, or ray://HOST:PORT.")] = "here",
    workers: Annotated[int | None, typer.Option(help="Jobs at a time.")] = None,
    dry_run: Annotated[bool, typer.Option(help="List the jobs and an estimate of time.")] = False,
) -> None:
    """Every table and figure of the paper: run the jobs that are missing, make the report."""
    import shlex
    import sys
    from dataclasses import replace

    from tpatcher.bench.experiments import asked, skipped
    from tpatcher.bench.reproduce import reproduce as run
    from tpatcher.bench.reproduce import tasks_of
    from tpatcher.bench.scale import SCALES

    logging_off()
    chosen: dict[str, Any] = {"learning_rate": rate, "tr": tr, "test": tr, "memory": memory}
    given = {name: value for name, value in chosen.items() if value is not None}
    size = replace(SCALES[scale].bounded(edits), **given)
    tasks = tasks_of(data or ["builtin"], model or [], path or [], without)
    command = shlex.join(["tpatcher", *sys.argv[1:]])
    names, left_out = asked(what or []), skipped(skip or [])
    if not run(console, names, tasks, size, out, command, on, workers, dry_run, left_out):
        raise typer.Exit(1)


@app.command()
def train(
    name: Annotated[str, typer.Argument(help="builtin-fc, builtin-qa, fever or zsre.")],
    out: Annotated[Path, typer.Argument(help="Where the model goes.")],
    base: Annotated[
        str | None, typer.Option(help="For fever and zsre: the model to begin with.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="For fever and zsre: the data's folder.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training set.")] = None,
) -> None:
    """Train the initial model f0; run again with the same OUT, it resumes."""
    from dataclasses import replace

    from tpatcher.checkpoints.builtin import train_builtin
    from tpatcher.checkpoints.train import FEVER, ZSRE
    from tpatcher.checkpoints.train import train as fine_tune
    from tpatcher.data import dataset
    from tpatcher.errors import BadInput
    from tpatcher.models.loading import BUILTIN

    if name in BUILTIN:
        train_builtin(name, out)  # type: ignore[arg-type]
    elif base is None or path is None or name not in ("fever", "zsre"):
        raise BadInput("give builtin-fc or builtin-qa, or fever or zsre with --base and --path")
    else:
        task = "classify" if name == "fever" else "seq2seq"
        recipe = FEVER if name == "fever" else ZSRE
        recipe = recipe if epochs is None else replace(recipe, epochs=epochs)
        fine_tune(base, dataset(name, path), task, out, recipe=recipe)  # type: ignore[arg-type]
    console.print(f"trained: {out}")
