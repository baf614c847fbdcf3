"""Fixing: fix a mistake, ask again, undo, list, and write a checkpoint."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from rich.table import Column, Table
from typer import Argument, Option

from tpatcher.cli.common import (
    Device,
    Dtype,
    Encoder,
    Json,
    MaxNewTokens,
    ModelName,
    Patches,
    Preset,
    Quantize,
    Traffic,
    app,
    console,
    emit,
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
        Preset, Option(help="fast; text: keys read the whole text; paper: trained by steps.")
    ] = "fast",
    device: Device = None,
    as_json: Json = False,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    encoder: Encoder = "",
) -> None:
    """Fix one mistake, or a file of them, and keep the fixes in a directory.

    The first time, give --traffic: a few thousand texts like those the model is used on. The
    memory made of them is kept beside the fixes. Stopped and run again, it goes on: what is fixed
    is right already.
    """
    from tpatcher.data import read_examples
    from tpatcher.editors.tpatcher import TPatcher, solver
    from tpatcher.errors import BadInput
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
            encoder=encoder,
        )
        editor = TPatcher(solver=solver(preset))
        editor.fit(edited, _memory(edited, patches, traffic, preset))
        if wrong is not None:
            examples = [_proposed(edited, one, wrong, abstain, yes)]
        alone = len(examples) == 1
        together = zip(
            examples, editor.edit_all(edited, examples, supersede=supersede), strict=True
        )
        results = track(
            together, "fixing", len(examples), console=console, transient=True, disable=alone
        )
        for example, made in results:
            done = _pushed(edited, example, made)
            if done["outcome"] == "fixed":
                seen = pack.write(patches, edited.patches, edited.base, replacing=seen)
            failed += done["outcome"] not in ("fixed", "right already")
            emit(done) if as_json else _show(done)
    if failed:
        raise typer.Exit(1)


def _pushed(model: Any, example: Any, made: Any) -> dict[str, Any]:
    """Push what an edit made on the model, and say how that came out."""
    from tpatcher.errors import AlreadyRight, NotFixed

    before = model.answer([example.text])[0]
    done = {"text": example.text, "answer": example.answer, "before": before}
    if isinstance(made, AlreadyRight):
        return done | {"outcome": "right already"}
    if isinstance(made, TPatcherError):
        what = "not fixed" if isinstance(made, NotFixed) else type(made).__name__
        return done | {"outcome": what, "error": str(made)}
    if made.certificate.fixed is False:
        why = f"{example.text!r} does not get the answer {example.answer!r} with the patch that "
        return done | {"outcome": "not fixed", "error": why + "was trained, so it was not kept"}
    model.push(made)
    now = model.answer([example.text])[0]
    about = {"id": made.id, "certificate": made.certificate.to_json()}
    return done | {"outcome": "fixed", "now": now, **about}


def _show(done: dict[str, Any]) -> None:
    """Show how a fix came out."""
    asked, before, now, error = (
        verbatim(done.get(k, "")) for k in ("text", "before", "now", "error")
    )
    if done["outcome"] == "fixed":
        _say(f"[green]fixed[/] {asked} → [s]{before}[/] {now}")
    elif done["outcome"] == "right already":
        _say(f"[dim]right already[/] {asked} → {before}")
    else:
        _say(f"[red]{done['outcome']}[/] {error}")


@app.command()
def answer(
    model: ModelName,
    texts: Annotated[list[str], Argument(help="The texts to answer.")],
    patches: Annotated[Path | None, Option(help="The directory that keeps the fixes.")] = None,
    device: Device = None,
    as_json: Json = False,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    encoder: Encoder = "",
) -> None:
    """Answer texts with a model and its fixes."""
    options = {"max_new_tokens": max_new_tokens, "dtype": dtype, "quantize": quantize}
    edited = opened(model, patches, device, encoder=encoder, **options)
    for text, one in zip(texts, edited.answer(texts), strict=True):
        if as_json:
            emit({"text": text, "answer": one})
            continue
        typer.echo(plain(one, keep="\u200c\u200d\n\t"))


@app.command()
def undo(
    model: ModelName,
    patches: Patches,
    ids: Annotated[list[str], Argument(help="The fixes to remove, as `log` names them.")],
    device: Device = None,
    as_json: Json = False,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    encoder: Encoder = "",
) -> None:
    """Remove fixes; what the others do stays the same, bit for bit."""
    from tpatcher.errors import BadInput
    from tpatcher.patches import pack

    if not pack.index(patches):
        raise BadInput(f"{patches} is not a pack of patches: it has no {pack.INDEX}")
    with pack.lock(patches, waiting=lambda: _say_waiting(patches)):
        seen = pack.index(patches)
        options = {"max_new_tokens": max_new_tokens, "dtype": dtype, "quantize": quantize}
        edited = opened(model, patches, device, encoder=encoder, **options)
        wrong_again = []
        for one in ids:
            for broken in edited.remove(one):
                wrong_again.append(broken.id)
                text = broken.example.text if broken.example else broken.id
                what = verbatim(f"{text!r} depended on {one} and is wrong again: fix it again")
                _say(f"[yellow]{what}[/]")
        pack.write(patches, edited.patches, edited.base, replacing=seen)
    if as_json:
        emit({"undone": ids, "wrong_again": wrong_again, "left": len(edited.patches)})
        return
    _say(verbatim(f"undone: {', '.join(ids)}; {len(edited.patches)} fixes are left"))


@app.command()
def log(patches: Patches, as_json: Json = False) -> None:
    """List the fixes and what was checked when each was made."""
    from tpatcher.patches import pack

    found = pack.read(patches)
    if as_json:
        for patch in found:
            emit(patch.meta)
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
    gguf: Annotated[bool, Option(help="Write OUT/model.gguf too, for llama.cpp.")] = False,
    as_json: Json = False,
    spare: Annotated[
        int, Option(help="Neurons of zeros for later fixes, which then change no shape.", min=0)
    ] = 0,
    encoder: Encoder = "",
) -> None:
    """Write a stock checkpoint that has the fixes in its weights and runs without tpatcher."""
    from tpatcher.checkpoints.bake import bake as write
    from tpatcher.checkpoints.by_position import by_position
    from tpatcher.editors.tpatcher.memory import Memory

    as_fixed, again = opened(model, patches, None, encoder=encoder), None
    fixed, carries = as_fixed, None
    if (patches / "memory-text" / "memory.json").exists():
        again = by_position(as_fixed, Memory.load(patches / "memory-text"))
        fixed, carries = again.model, None if encoder else as_fixed  # a graph holds no encoder
    apart = write(fixed, out, onnx=onnx, onnx_of=carries, gguf=gguf, spare=spare)
    if as_json:
        cost = {k: v for k, v in vars(again).items() if k != "model"} if again else {}
        emit({"out": str(out), "largest_difference": apart, **cost})
        return
    if again and again.again:
        console.print(
            f"{again.again} fixes read the text and were solved again for their positions: of "
            f"{again.rephrasings} rephrasings {again.right_now} are right, {again.right_before} "
            "before"
        )
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
    from tpatcher.editors.tpatcher import solver
    from tpatcher.editors.tpatcher.memory import Memory

    kept = [patches / "memory"]
    if preset == "paper":
        kept = [patches / "memory-paper", *kept]
    if preset == "text":
        kept = [patches / "memory-text"]
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
    chosen = solver(preset)
    memory = Memory.collect(
        model,
        items,
        reads=chosen.reads,
        progress=True,
        skip_bos=chosen.skips_bos,
        background=chosen.background,
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
