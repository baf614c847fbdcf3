"""Research: sequential model editing, its tables, and the models it begins with."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from tpatcher.cli.common import (
    Device,
    Encoder,
    Json,
    ModelName,
    Preset,
    app,
    console,
    emit,
    fields_of,
    logging_off,
)


@app.command()
def demo(
    report: Annotated[Path, Option(help="Where the report goes.")] = Path("report.html"),
    as_json: Annotated[Path | None, Option("--json", help="Numbers as JSON.")] = None,
    edits: Annotated[int, Option(help="Mistakes to fix per task.")] = 60,
) -> None:
    """Sequential model editing on both built-in tasks; needs nothing but this package."""
    from tpatcher.bench.demo import demo as run

    logging_off()
    if not run(console, report, as_json, edits):
        raise typer.Exit(1)


@app.command()
def sme(
    model: ModelName,
    data: Annotated[
        str,
        Option(
            help="builtin-fc, builtin-qa, fever, zsre, counterfact, wikibigedit, qaedit, …, own."
        ),
    ],
    out: Annotated[Path, Option(help="Where the runs go; a killed one is resumed.")],
    path: Annotated[Path | None, Option(help="The dataset's folder or file.")] = None,
    without: Annotated[Path | None, Option(help="Texts to keep out of D_test (zsre).")] = None,
    traffic: Annotated[
        list[Path] | None,
        Option(help="Unlabelled texts (.txt, .jsonl) to fill the memory with; repeatable."),
    ] = None,
    editor: Annotated[str, Option(help="t-patcher, ft-all, …")] = "t-patcher",
    preset: Annotated[Preset | None, Option(help="T-Patcher's.")] = None,
    knobs: Annotated[str, Option(help="The editor's other fields, as JSON.")] = "{}",
    folders: Annotated[int, Option(help="0: the whole edit set as one stream.")] = 0,
    folder: Annotated[int | None, Option(help="Only this one of the folders.")] = None,
    edits: Annotated[int | None, Option(help="A stream ends with so many mistakes of f0.")] = None,
    most: Annotated[int | None, Option(help="Only so many examples per stream.")] = None,
    tr: Annotated[int, Option(help="Examples of D_tr, and at most as many of D_test.")] = 10_000,
    test: Annotated[int | None, Option(help="Examples of D_test, if not as many.")] = None,
    memory_size: Annotated[int, Option(help="Memory examples.")] = 40_000,
    every: Annotated[int | None, Option(help="Measure retention every so many edits.")] = None,
    given: Annotated[int, Option(help="Rephrasings shown to the editor.")] = 0,
    longer: Annotated[
        int, Option(help="A longer stream: so many examples of D_test as well.", min=0)
    ] = 0,
    remember: Annotated[
        bool, Option("--remember", help="What the stream has right joins T-Patcher's memory.")
    ] = False,
    seed: int = 0,
    skip_bad: Annotated[bool, Option(help="Count bad lines instead of stopping.")] = False,
    encoder: Encoder = "",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Sequential model editing (SME) on a dataset: the paper's five metrics."""
    from tpatcher.bench.context import Context
    from tpatcher.bench.job import Job
    from tpatcher.bench.run import run_folders

    job = Job(
        model=model,
        data=data,
        editor=editor,
        fields=fields_of(knobs) | ({"solver": {"name": preset}} if preset else {}),
        path=path,
        exclude=without,
        traffic=tuple(traffic or ()),
        folders=folders,
        folder=folder or 0,
        edits=edits,
        limit=most,
        n_train=tr,
        n_test=test,
        memory_size=memory_size,
        measure_every=every,
        shown_rephrasings=given,
        extra_from_test=longer,
        remember=remember,
        seed=seed,
        skip_bad=skip_bad,
        encoder=encoder,
    )
    logging_off()
    context = Context.open(job, out.parent, device, progress=True)
    result = run_folders(job, context, out, console, folder)
    emit(result) if as_json else console.print_json(json.dumps(result))


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="TABLE",
            help="table1 … table7, figure4 … figure7, costs, frontier; all if none.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        Option(help="builtin, fever, zsre or a path; twice for a report on both tasks."),
    ] = None,
    model: Annotated[list[str] | None, Option(help="The initial model of each.")] = None,
    path: Annotated[
        list[Path] | None,
        Option(help="The folder of each dataset; without --data, that of both FEVER and zsRE."),
    ] = None,
    base: Annotated[
        list[str] | None,
        Option(help="Without --data: what f0 is trained from, twice, if not the paper's models."),
    ] = None,
    without: Annotated[Path | None, Option(help="Texts to keep out of D_test (zsre).")] = None,
    scale: Annotated[
        Literal["small", "full"], Option(help="A small part, or the paper's own scale.")
    ] = "small",
    folders: Annotated[
        int | None, Option(help="1: the whole edit set as one stream in every table.", min=1)
    ] = None,
    edits: Annotated[
        str | None, Option(help="Mistakes per folder, or all; twice as many per whole stream.")
    ] = None,
    stream: Annotated[
        str | None, Option(help="Mistakes of the whole edit set as one stream, or all.")
    ] = None,
    every: Annotated[
        int | None, Option(help="Edits between two points of a curve, if not the scale's.", min=1)
    ] = None,
    rate: Annotated[
        float | None, Option(help="Fine-tuning's learning rate, if not the scale's.")
    ] = None,
    tr: Annotated[
        int | None, Option(help="Examples of D_tr and of D_test, if not the scale's.")
    ] = None,
    test: Annotated[int | None, Option(help="Examples of D_test, if not as many.")] = None,
    memory_size: Annotated[
        int | None, Option(help="Memory examples, if not as many as the scale's.")
    ] = None,
    knobs: Annotated[
        str, Option(help='Settings of baselines as JSON, as {"zsre.ke": {"released": "FILE"}}.')
    ] = "{}",
    skip: Annotated[
        list[str] | None, Option(help="A row to leave out, as ke or kl-patch; repeatable.")
    ] = None,
    only: Annotated[list[str] | None, Option(help="Of all rows only this one; repeatable.")] = None,
    skip_bad: Annotated[bool, Option(help="Name and count bad rows instead of stopping.")] = False,
    out: Annotated[
        Path, Option(help="Where jobs, tables and the report go; complete jobs are kept.")
    ] = Path("reproduction"),
    on: Annotated[str, Option(help="here, ray, or ray://HOST:PORT.")] = "here",
    workers: Annotated[int | None, Option(help="Jobs at a time; with cuda, one a GPU.")] = None,
    device: Device = None,
    dry_run: Annotated[
        bool, Option(help="Only list the jobs, and about how long they take.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Every table and figure of the paper: run the jobs that are missing, make the report."""
    import shlex
    import sys
    from dataclasses import replace

    from tpatcher.bench.experiments import rows_named, tables_named
    from tpatcher.bench.paper_setups import paper_setups
    from tpatcher.bench.reproduce import reproduce as run
    from tpatcher.bench.scale import SCALES
    from tpatcher.bench.setup import setups
    from tpatcher.errors import BadInput

    logging_off()
    streams = SCALES[scale].with_streams(
        folders, _mistakes("edits", edits), _mistakes("stream", stream)
    )
    streams = streams.with_knobs(fields_of(knobs))
    sizes = {
        "learning_rate": rate,
        "n_train": tr,
        "n_test": tr if test is None else test,
        "memory_size": memory_size,
        "measure_every": every,
    }
    chosen: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if path and not data and not model:
        if len(path) > 1 or len(base or ["", ""]) != 2:
            raise BadInput("without --data, give one --path with both datasets, and --base twice")
        found = paper_setups(
            path[0],
            out,
            console,
            bases=base or (),
            device=device,
            skip_bad=skip_bad,
            dry_run=dry_run,
        )
    else:
        found = setups(data or ["builtin"], model or [], path or [], without, skip_bad)
    complete = run(
        console,
        tables_named(names or []),
        found,
        replace(streams, **chosen),
        out,
        shlex.join(["tpatcher", *sys.argv[1:]]),
        executor=on,
        workers=workers,
        device=device,
        dry_run=dry_run,
        skip=rows_named(skip or []),
        only=rows_named(only or []),
    )
    if as_json:
        tables = [str(path) for path in sorted((out / "tables").glob("*.csv"))]
        emit({"complete": complete, "report": str(out / "report.html"), "tables": tables})
    if not complete:
        raise typer.Exit(1)


def _mistakes(option: str, number: str | None) -> int | Literal["all"] | None:
    """How many mistakes an option asks for."""
    if number is None or number == "all":
        return number  # type: ignore[return-value]
    if not number.isdecimal() or int(number) == 0:
        raise typer.BadParameter(
            f"give a number of mistakes, or all; found {number!r}", param_hint=f"--{option}"
        )
    return int(number)


@app.command()
def train(
    name: Annotated[str, Argument(help="builtin-fc, builtin-qa, fever or zsre.")],
    out: Annotated[Path, Argument(help="Where the model goes.")],
    base: Annotated[str | None, Option(help="For fever and zsre: the model to begin with.")] = None,
    path: Annotated[Path | None, Option(help="For fever and zsre: the data's folder.")] = None,
    epochs: Annotated[
        float | None, Option(help="Passes over the training set, if not De Cao's updates.")
    ] = None,
    skip_bad: Annotated[bool, Option(help="Count bad lines instead of stopping.")] = False,
    device: Annotated[
        str | None, Option(help="cpu or cuda; a GPU that is there if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train the initial model f0; run again with the same OUT, it resumes."""
    from tpatcher.checkpoints.builtin import BUILTIN, train_builtin
    from tpatcher.checkpoints.recipes import FEVER, ZSRE
    from tpatcher.checkpoints.train import train as fine_tune
    from tpatcher.data import dataset
    from tpatcher.errors import BadInput, unknown

    recipes = {**BUILTIN, "fever": FEVER, "zsre": ZSRE}
    if name not in recipes:
        raise unknown("model to train", name, recipes)
    if name not in BUILTIN and (base is None or path is None):
        raise BadInput(f"to train a model of {name}, give --base and --path")
    recipe = recipes[name] if epochs is None else recipes[name].for_epochs(epochs)
    if name in BUILTIN:
        train_builtin(name, out, recipe=recipe, device=device)  # type: ignore[arg-type]
    else:
        task = "classify" if name == "fever" else "seq2seq"
        data = dataset(name, path, skip_bad=skip_bad)
        fine_tune(base, data, task, out, recipe=recipe, device=device)  # type: ignore[arg-type]
    emit({"out": str(out)}) if as_json else console.print(f"trained: {out}")
