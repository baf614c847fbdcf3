"""The command line: each command a few lines over the library, under the same names."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Column, Table

from tpatcher.errors import TPatcherError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Fix the mistakes of transformer models, one neuron a mistake.",
)  # fmt: skip
console = Console()

ModelName = Annotated[
    str, typer.Argument(help="A directory, a name on the hub, or builtin-fc/-qa.")
]
Patches = Annotated[Path, typer.Option(help="Where the fixes are kept.")]
Preset = Literal["fast", "paper"]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, auto …; the model's own if not given.")
]


@app.command()
def answer(
    model: ModelName,
    texts: Annotated[list[str], typer.Argument(help="What to ask.")],
    patches: Annotated[Path | None, typer.Option(help="Fixes to put on first.")] = None,
    device: Device = None,
) -> None:
    """Ask a model, with its fixes."""
    for one in _load(model, patches, device).answer(texts):
        typer.echo(one)


@app.command()
def fix(
    model: ModelName,
    patches: Patches,
    text: Annotated[str | None, typer.Option(help="What was asked.")] = None,
    answer: Annotated[str | None, typer.Option(help="The right answer.")] = None,
    rephrasing: Annotated[list[str] | None, typer.Option(help="The same in other words.")] = None,
    file: Annotated[Path | None, typer.Option(help="Many mistakes: JSONL or CSV.")] = None,
    traffic: Annotated[Path | None, typer.Option(help="Ordinary texts, to be left alone.")] = None,
    skip_bad: Annotated[bool, typer.Option(help="Count bad lines instead of stopping.")] = False,
    supersede: Annotated[
        bool, typer.Option(help="Replace an earlier fix of the same text.")
    ] = False,
    preset: Annotated[Preset, typer.Option(help="How to find the neurons.")] = "fast",
    device: Device = None,
) -> None:
    """Fix one mistake, or a file of them, and keep the fixes.

    The first time, give --traffic: a few thousand texts like those the model is used on. The
    memory made of them is kept beside the fixes.
    """
    from tpatcher.data import read_examples
    from tpatcher.editors import TPatcher
    from tpatcher.errors import AlreadyRight, BadInput
    from tpatcher.example import Example

    if (file is None) == (text is None or answer is None):
        raise BadInput("give either --text and --answer, or --file with many of them")
    one = Example(text or "", answer or "", rephrasings=tuple(rephrasing or ()))
    examples = [one] if file is None else read_examples(file, skip_bad=skip_bad)
    edited = _load(model, patches if (patches / "patches.json").exists() else None, device)
    editor = TPatcher(preset=preset).fit(edited, _memory(edited, patches, traffic))
    failed = 0
    for example in examples:
        before = edited.answer([example.text])[0]
        try:
            edited.push(editor.edit(edited, example, supersede=supersede))
        except AlreadyRight:
            console.print(f"[dim]right already[/] {example.text} → {before}", highlight=False)
            continue
        except TPatcherError as error:
            failed += 1
            console.print(f"[red]{type(error).__name__}[/] {error}", highlight=False, markup=True)
            continue
        edited.save_patches(patches)
        now = edited.answer([example.text])[0]
        console.print(f"[green]fixed[/] {example.text} → [s]{before}[/] {now}", highlight=False)
    if failed:
        raise typer.Exit(1)


@app.command()
def log(
    patches: Patches,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the fixes, with what each certifies that it does not touch."""
    from tpatcher import pack

    found = pack.read(patches)
    if as_json:
        for patch in found:
            typer.echo(json.dumps(patch.meta, ensure_ascii=False))
        return
    table = Table(Column("fix", no_wrap=True), "asked", "answer", "neurons", "response",
                  "memory changed", "past changed")  # fmt: skip
    for patch in found:
        report, example = patch.report, patch.example
        table.add_row(
            patch.id,
            example.text if example else "(text left out)", example.answer if example else "",
            str(len(patch.tensors.get("keys", ()))), _shown(report.get("response")),
            _shown(report.get("memory answers changed")), _shown(report.get("past fixes changed")),
        )  # fmt: skip
    console.print(table)


@app.command()
def undo(
    model: ModelName,
    patches: Patches,
    ids: Annotated[list[str], typer.Argument(help="Which fixes, as `log` names them.")],
    device: Device = None,
) -> None:
    """Take fixes off again, bit for bit."""
    edited = _load(model, patches, device)
    for one in ids:
        for broken in edited.remove(one):
            text = broken.example.text if broken.example else broken.id
            console.print(
                f"[yellow]{text!r} had leaned on {one} and is wrong again: fix it anew[/]"
            )
    edited.save_patches(patches)
    console.print(f"undone: {', '.join(ids)}; {len(edited.patches)} fixes are left")


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
    editor: Annotated[str, typer.Option(help="t-patcher, ft-all, …")] = "t-patcher",
    preset: Annotated[Preset | None, typer.Option(help="T-Patcher's.")] = None,
    knobs: Annotated[str, typer.Option(help="The editor's other fields, as JSON.")] = "{}",
    folders: Annotated[int, typer.Option(help="0: the whole edit set as one stream.")] = 0,
    most: Annotated[int | None, typer.Option(help="Only so many examples per stream.")] = None,
    tr: Annotated[
        int, typer.Option(help="Examples of D_tr, and at most as many of D_test.")
    ] = 10_000,
    memory: Annotated[int, typer.Option(help="Memory examples.")] = 40_000,
    every: Annotated[
        int | None, typer.Option(help="Measure retention every so many edits.")
    ] = None,
    given: Annotated[int, typer.Option(help="Rephrasings shown to the editor.")] = 0,
    seed: int = 0,
    skip_bad: Annotated[bool, typer.Option(help="Count bad lines instead of stopping.")] = False,
    device: Device = None,
) -> None:
    """Sequential model editing on a dataset: the paper's five metrics."""
    from tpatcher.bench.job import Job, run

    fields = json.loads(knobs) | ({"preset": preset} if preset else {})
    job = Job(
        model, data, editor, fields, path, without, folders, most, tr, memory, every, given, seed,
        skip_bad,
    )  # fmt: skip
    logging_off()
    console.print_json(json.dumps(run(job, out, console, device)))


@app.command()
def bake(
    model: ModelName,
    patches: Patches,
    out: Annotated[Path, typer.Argument(help="A new directory for the checkpoint.")],
) -> None:
    """Write a stock checkpoint with the fixes inside, which needs no tpatcher to run."""
    from tpatcher.bake import bake as write

    apart = write(_load(model, patches, None), out)
    console.print(f"baked: {out}; its logits differ by at most {apart:.1e}")


@app.command()
def serve(
    model: ModelName,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond loopback only with tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port.")] = 8000,
    store: Annotated[str, typer.Option(help="A file, or postgresql+psycopg://…")] = "fixes.db",
    memory: Annotated[Path | None, typer.Option(help="Ordinary texts, to be left alone.")] = None,
    canaries: Annotated[Path | None, typer.Option(help="Examples that must stay right.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="The file that `token` writes.")] = None,
    flips: Annotated[int, typer.Option(help="Canaries that a fix may flip.")] = 0,
    shadow: Annotated[bool, typer.Option(help="Only record what would have been done.")] = False,
    device: Device = None,
) -> None:
    """Serve a model: report a mistake, and the next user gets the right answer."""
    from tpatcher.service import serve as run

    logging_off()
    run(
        model, host=host, port=port, store=store, memory=memory, canaries=canaries, tokens=tokens,
        flips=flips, shadow=shadow, device=device,
    )  # fmt: skip


@app.command()
def token(
    file: Annotated[Path, typer.Argument(help="Where the hashed tokens are kept.")],
    name: Annotated[str, typer.Argument(help="Who it is for.")],
    role: Annotated[
        Literal["answer", "report", "fix", "admin"], typer.Argument(help="What it may do.")
    ],
) -> None:
    """Make a token for the service; it is shown once and kept only as a hash."""
    from tpatcher.service.access import issue

    typer.echo(issue(file, name, role))


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

    from tpatcher.data import dataset
    from tpatcher.errors import BadInput
    from tpatcher.models import BUILTIN
    from tpatcher.train import FEVER, ZSRE, train_builtin
    from tpatcher.train import train as fine_tune

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


def _load(name: str, patches: Path | None, device: str | None) -> Any:
    from tpatcher.models import load

    logging_off()
    return load(name, patches=patches, device=device)


def logging_off() -> None:
    """Keep the bars that Transformers draws while it loads weights off the screen."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _memory(model: Any, patches: Path, traffic: Path | None) -> Any:
    """The memory kept beside the fixes, made of the traffic when that is given."""
    from tpatcher.data import DATASETS, read_texts
    from tpatcher.errors import NoMemory
    from tpatcher.memory import Memory

    kept = patches / "memory"
    if traffic is None and (kept / "memory.json").exists():
        return Memory.load(kept)
    if traffic is not None:
        texts = read_texts(traffic)
    elif model.name in DATASETS:  # a built-in model: the questions it was trained on
        _, examples = DATASETS[model.name]().retained(memory=6_000)
        texts = [e.text for e in examples]
    else:
        raise NoMemory(
            "no traffic is known for this model yet: give --traffic FILE the first time, with a "
            "few thousand texts like those the model is used on, one a line"
        )
    memory = Memory.collect(model, texts, progress=True)
    memory.save(kept)
    return memory


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{v:.1f}" for v in value)
    return "–" if value is None else str(value)


def main() -> None:
    """Run a command; what went wrong is said in one line, not in a traceback."""
    try:
        app()
    except TPatcherError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/]: {error}", highlight=False)
        sys.exit(2)
