"""Fixing: fix a mistake, ask again, undo, list, and write a checkpoint."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from typer import Argument, Option

from tpatcher.cli.common import (
    Device,
    Dtype,
    MaxNewTokens,
    ModelName,
    Patches,
    Preset,
    Quantize,
    Traffic,
    app,
    console,
    opened,
    plain,
    verbatim,
)
from tpatcher.errors import NotFitted, TPatcherError

COLUMNS = ("text", "answer", "neurons", "response", "memory changed", "past fixes changed")


@app.command()
def fix(
    model: ModelName,
    patches: Patches,
    text: Annotated[str | None, Option(help="The text that is answered wrongly.")] = None,
    answer: Annotated[str | None, Option(help="The right answer.")] = None,
    wrong: Annotated[
        str | None,
        Option(help="The wrong answer, if nobody knows the right one: the next best is proposed."),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Take what is proposed without asking.")] = False,
    abstain: Annotated[
        str | None, Option(help="What to say instead of --wrong, if the model writes texts.")
    ] = None,
    rephrasing: Annotated[
        list[str] | None, Option(help="The same text in other words; repeatable.")
    ] = None,
    file: Annotated[Path | None, Option(help="Many mistakes: JSONL or CSV.")] = None,
    traffic: Traffic = None,
    skip_bad: Annotated[bool, Option(help="Count bad lines instead of stopping.")] = False,
    supersede: Annotated[bool, Option(help="Replace an earlier fix of the same text.")] = False,
    preset: Annotated[
        Preset, Option(help="fast, or paper: neurons trained as in the paper.")
    ] = "fast",
    device: Device = None,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
) -> None:
    """Fix one mistake, or a file of them, and keep the fixes in a directory.

    The first time, give --traffic: a few thousand texts like those the model is used on. The
    memory made of them is kept beside the fixes.
    """
    from tpatcher.data import read_examples
    from tpatcher.editors.tpatcher import TPatcher, solver
    from tpatcher.errors import AlreadyRight, BadInput, NotFixed
    from tpatcher.example import Example
    from tpatcher.patches import pack

    if (file is None) == (text is None or (answer is None) == (wrong is None)):
        raise BadInput("give --text with --answer or --wrong, or --file with many mistakes")
    one = Example(text or "", answer or "", rephrasings=tuple(rephrasing or ()))
    examples = [one] if file is None else read_examples(file, skip_bad=skip_bad)
    failed = 0
    with pack.lock(patches, waiting=lambda: _say_waiting(patches)):
        seen = pack.index(patches)
        edited = opened(
            model,
            patches if seen else None,
            device,
            max_new_tokens=max_new_tokens,
            dtype=dtype,
            quantize=quantize,
        )
        editor = TPatcher(solver=solver(preset))
        editor.fit(edited, _memory(edited, patches, traffic, preset))
        if wrong is not None:
            examples = [_proposed(edited, one, wrong, abstain, yes)]
        for example in examples:
            before = edited.answer([example.text])[0]
            try:
                patch = editor.edit(edited, example, supersede=supersede)
                if patch.certificate.fixed is False:
                    raise NotFixed(
                        f"{example.text!r} does not get the answer {example.answer!r} with the "
                        "patch that was trained, so the patch was not kept"
                    )
                edited.push(patch)
            except AlreadyRight:
                _say(f"[dim]right already[/] {verbatim(example.text)} → {verbatim(before)}")
                continue
            except TPatcherError as error:
                failed += 1
                what = "not fixed" if isinstance(error, NotFixed) else type(error).__name__
                _say(f"[red]{what}[/] {verbatim(error)}")
                continue
            seen = pack.write(patches, edited.patches, edited.base, replacing=seen)
            now = edited.answer([example.text])[0]
            asked, before, now = (verbatim(t) for t in (example.text, before, now))
            _say(f"[green]fixed[/] {asked} → [s]{before}[/] {now}")
    if failed:
        raise typer.Exit(1)


@app.command()
def answer(
    model: ModelName,
    texts: Annotated[list[str], Argument(help="The texts to answer.")],
    patches: Annotated[Path | None, Option(help="The directory that keeps the fixes.")] = None,
    device: Device = None,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
) -> None:
    """Answer texts with a model and its fixes."""
    edited = opened(
        model, patches, device, max_new_tokens=max_new_tokens, dtype=dtype, quantize=quantize
    )
    for one in edited.answer(texts):
        typer.echo(plain(one, keep="\u200c\u200d\n\t"))


@app.command()
def undo(
    model: ModelName,
    patches: Patches,
    ids: Annotated[list[str], Argument(help="The fixes to remove, as `log` names them.")],
    device: Device = None,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
) -> None:
    """Remove fixes; what the others do stays the same, bit for bit."""
    from tpatcher.errors import BadInput
    from tpatcher.patches import pack

    if not pack.index(patches):
        raise BadInput(f"{patches} is not a pack of patches: it has no {pack.INDEX}")
    with pack.lock(patches, waiting=lambda: _say_waiting(patches)):
        seen = pack.index(patches)
        edited = opened(
            model, patches, device, max_new_tokens=max_new_tokens, dtype=dtype, quantize=quantize
        )
        for one in ids:
            for broken in edited.remove(one):
                text = broken.example.text if broken.example else broken.id
                what = verbatim(f"{text!r} depended on {one} and is wrong again: fix it again")
                _say(f"[yellow]{what}[/]")
        pack.write(patches, edited.patches, edited.base, replacing=seen)
    _say(verbatim(f"undone: {', '.join(ids)}; {len(edited.patches)} fixes are left"))


@app.command()
def log(
    patches: Patches,
    as_json: Annotated[bool, Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the fixes and what was checked when each was made."""
    from tpatcher.patches import pack

    found = pack.read(patches)
    if as_json:
        for patch in found:
            typer.echo(plain(json.dumps(patch.meta, ensure_ascii=False)))
        return
    columns = [Column(name, overflow="fold") for name in COLUMNS]  # no word is cut
    table = Table(Column("fix", no_wrap=True), *columns)
    for patch in found:
        checked, example = patch.certificate, patch.example
        table.add_row(
            verbatim(patch.id),
            verbatim(example.text) if example else "(text left out)",
            verbatim(example.answer) if example else "",
            str(len(patch.tensors.get("keys", ()))),
            _shown(list(checked.response) or None),
            _shown(checked.memory_changed),
            _shown(checked.past_fixes_changed),
        )
    console.print(table)


@app.command()
def bake(
    model: ModelName,
    patches: Patches,
    out: Annotated[Path, Argument(help="A new directory for the checkpoint.")],
    onnx: Annotated[
        bool, Option(help="Write OUT/model.onnx too: one forward pass, logits out.")
    ] = False,
    spare: Annotated[
        int, Option(help="Neurons of zeros for later fixes, which then change no shape.", min=0)
    ] = 0,
) -> None:
    """Write a stock checkpoint that has the fixes in its weights and runs without tpatcher."""
    from tpatcher.checkpoints.bake import bake as write

    apart = write(opened(model, patches, None), out, onnx=onnx, spare=spare)
    console.print(f"baked: {out}; its logits differ by at most {apart:.1e}")


def _proposed(model: Any, mistake: Any, wrong: str, abstain: str | None, yes: bool) -> Any:
    """The mistake with the answer that the model proposes, once a person has said yes to it."""
    from tpatcher.models.instead import instead

    rephrasings = mistake.rephrasings
    example = instead(model, mistake.text, wrong=wrong, abstention=abstain, rephrasings=rephrasings)
    asked = f"answer {plain(example.text)} with {plain(example.answer)}?"
    if not yes and not typer.confirm(asked):
        raise typer.Exit(1)
    return example


def _say(markup: str) -> None:
    console.print(markup, highlight=False)


def _say_waiting(patches: Path) -> None:
    console.print(f"another process is changing {patches}; waiting for it", markup=False)


def _memory(model: Any, patches: Path, traffic: Path | None, preset: str) -> Any:
    """The memory kept beside the fixes; collected anew if traffic is given.

    The paper's memory follows right answers, so it is kept apart. Where no right answers are
    known, it follows the model's own, and that is said.
    """
    from tpatcher import data
    from tpatcher.editors.tpatcher import SOLVERS
    from tpatcher.editors.tpatcher.memory import Memory

    kept = [patches / "memory"]
    if preset == "paper":
        kept = [patches / "memory-paper", *kept]
    found = [path for path in kept if traffic is None and (path / "memory.json").exists()]
    if found:
        if found[0] != kept[0]:
            _say_own_answers("the memory beside the fixes")
        return Memory.load(found[0])
    try:
        read: Any = data.answered_traffic if preset == "paper" else data.traffic
        items = read(model.name, traffic)
    except NotFitted as error:
        raise NotFitted(f"{error} (--traffic FILE)") from error
    if preset == "paper" and isinstance(items[0], str):
        _say_own_answers(str(traffic))
    chosen = SOLVERS[preset]()
    memory = Memory.collect(
        model, items, progress=True, skip_bos=chosen.skips_bos, background=chosen.background
    )
    memory.save(kept[0])
    return memory


def _say_own_answers(where: str) -> None:
    console.print(
        f"{where} has no right answers, which the paper's memory follows: the model's own answers "
        "are followed instead",
        highlight=False,
        markup=False,
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{v:.1f}" for v in value)
    return "–" if value is None else str(value)
