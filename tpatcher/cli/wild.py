"""Language models in the wild: a long stream of edits, and what becomes of the model."""

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from tpatcher.cli.common import (
    Device,
    Dtype,
    Encoder,
    Json,
    MaxNewTokens,
    ModelName,
    Quantize,
    app,
    console,
    emit,
    fields_of,
    opened,
)


@app.command()
def wild(
    model: ModelName,
    data: Annotated[str, Option(help="zsre, counterfact, wikibigedit, qaedit or hallueditbench.")],
    path: Annotated[Path, Option(help="The set's file, or a folder of such files.")],
    out: Annotated[Path, Option(help="Where the run goes; a killed one is resumed.")],
    traffic: Annotated[
        Path | None, Option(help="Ordinary texts to leave alone; without, a background alone.")
    ] = None,
    editor: Annotated[str, Option(help="t-patcher, cache, grace, ft-last, …")] = "t-patcher",
    knobs: Annotated[str, Option(help="The editor's fields, as JSON.")] = "{}",
    edits: Annotated[int, Option(help="Mistakes to fix, one after the other.", min=1)] = 1000,
    every: Annotated[int, Option(help="Measure every so many edits.", min=0)] = 100,
    asked: Annotated[int, Option(help="Edits asked about on the way; at the end, all.")] = 100,
    asked_at_end: Annotated[int | None, Option(help="At the end, no more than these.")] = None,
    held_out: Annotated[
        Path | None, Option(help="Texts for perplexity; Python's documentation if not given.")
    ] = None,
    capability: Annotated[
        list[str] | None,
        Option(help="A task of lm-evaluation-harness, run before and after; repeatable."),
    ] = None,
    max_new_tokens: MaxNewTokens = 32,
    device: Device = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    encoder: Encoder = "",
    as_json: Json = False,
) -> None:
    """Edit a language model as WILD does: in one stream, asked freely, exact match.

    The report beside the run has the published rows of other editors, each with its protocol.
    """
    from tpatcher.bench.harness import capability as scores
    from tpatcher.bench.progress import Bars
    from tpatcher.bench.wild.report import write
    from tpatcher.bench.wild.stream import Plan, fitted, run
    from tpatcher.data import read_texts
    from tpatcher.data.wild import wild as read
    from tpatcher.editors import make
    from tpatcher.files import write_atomic

    examples = read(data, path)
    options = {"max_new_tokens": max_new_tokens, "dtype": dtype, "quantize": quantize}
    edited = opened(model, None, device, encoder=encoder, **options)
    method = make(editor, **fields_of(knobs))
    method = fitted(edited, method, read_texts(traffic) if traffic else [], out)
    plan = Plan(edits, every, asked, asked_at_end)
    texts = read_texts(held_out) if held_out else ()
    command = shlex.join(["tpatcher", *sys.argv[1:]])

    def show(row: dict[str, Any]) -> None:
        page = write(out, data, edited.name, editor, command)
        if as_json:
            emit({**row, "report": str(page)})
            return
        console.print(row, f"report: {page}", highlight=False, markup=False)

    with Bars(console) as progress:
        bar = progress.add_task(editor, total=edits)
        run(edited, method, examples, plan, out, texts, show, partial(progress.update, bar))
    if capability:
        both = {"before": edited.unpatched(), "after": edited}
        kept = {when: scores(one, capability) for when, one in both.items()}
        write_atomic(out / "capability.json", json.dumps(kept, indent=1).encode())
        emit({"capability": kept}) if as_json else console.print(kept)
