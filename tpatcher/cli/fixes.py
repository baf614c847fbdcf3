"""Fixing: ask, fix, list, undo, and take the fixes elsewhere."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from tpatcher.cli.common import Device, ModelName, Patches, Preset, app, console, opened
from tpatcher.errors import TPatcherError


@app.command()
def answer(
    model: ModelName,
    texts: Annotated[list[str], typer.Argument(help="What to ask.")],
    patches: Annotated[Path | None, typer.Option(help="Fixes to put on first.")] = None,
    device: Device = None,
) -> None:
    """Ask a model, with its fixes."""
    for one in opened(model, patches, device).answer(texts):
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
    edited = opened(model, patches if (patches / "patches.json").exists() else None, device)
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
    from tpatcher.patches import pack

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
    edited = opened(model, patches, device)
    for one in ids:
        for broken in edited.remove(one):
            text = broken.example.text if broken.example else broken.id
            console.print(
                f"[yellow]{text!r} had leaned on {one} and is wrong again: fix it anew[/]"
            )
    edited.save_patches(patches)
    console.print(f"undone: {', '.join(ids)}; {len(edited.patches)} fixes are left")


@app.command()
def bake(
    model: ModelName,
    patches: Patches,
    out: Annotated[Path, typer.Argument(help="A new directory for the checkpoint.")],
    onnx: Annotated[bool, typer.Option(help="Also as OUT/model.onnx: one pass, logits.")] = False,
) -> None:
    """Write a stock checkpoint with the fixes inside, which needs no tpatcher to run."""
    from tpatcher.checkpoints.bake import bake as write

    apart = write(opened(model, patches, None), out, onnx=onnx)
    console.print(f"baked: {out}; its logits differ by at most {apart:.1e}")


def _memory(model: Any, patches: Path, traffic: Path | None) -> Any:
    """The memory kept beside the fixes, made of the traffic when that is given."""
    from tpatcher.data import traffic as texts
    from tpatcher.editors.tpatcher.memory import Memory

    kept = patches / "memory"
    if traffic is None and (kept / "memory.json").exists():
        return Memory.load(kept)
    memory = Memory.collect(model, texts(model.name, traffic), progress=True)
    memory.save(kept)
    return memory


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{v:.1f}" for v in value)
    return "–" if value is None else str(value)
