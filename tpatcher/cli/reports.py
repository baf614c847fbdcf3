"""Corrections that people made in other tools, taken in as reports or as a file of mistakes."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import track
from typer import Argument, Option

from tpatcher.batches import batches
from tpatcher.cli.common import Json, app, console, emit, plain, verbatim

Source = Literal["argilla", "label-studio", "langsmith", "langfuse", "dify", "plain"]
BLOCK = 500  # reports that are written in one transaction
SHOWN = 20  # bad rows that are named


@app.command("import-reports")
def import_reports(
    file: Annotated[Path, Argument(help="What the tool exported: .json, .jsonl, .csv or .tsv.")],
    store: Annotated[
        str | None, Option(help="The store of a service, at whose desk the reports then wait.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="A JSONL file of mistakes for `fix --file`, instead of --store.")
    ] = None,
    source: Annotated[
        Source | None, Option("--from", help="The tool; found out if not given.")
    ] = None,
    text: Annotated[str | None, Option(help="The field that holds the text.")] = None,
    answer: Annotated[str | None, Option(help="The field that holds the right answer.")] = None,
    said: Annotated[str | None, Option(help="The field that holds the model's answer.")] = None,
    limit: Annotated[int, Option(help="How many reports may wait in the store.")] = 10_000,
    as_json: Json = False,
) -> None:
    """Take in corrections from Argilla, Label Studio, LangSmith, Langfuse, Dify, CSV or JSONL.

    A bad row is named and counted, and the others go on; the exit code is 1 if there was one.
    """
    from tpatcher import files
    from tpatcher.data.reports import Names, read_corrections
    from tpatcher.data.reports.export import jsonl
    from tpatcher.errors import BadInput
    from tpatcher.example import Example

    if (store is None) == (out is None):
        raise BadInput("give either --store, where reports wait, or --out, a file to write")
    found = read_corrections(file, source, Names(text, answer, said))
    for number, why in found.bad[:SHOWN]:
        console.print(f"[red]bad row[/] {verbatim(f'{file}:{number}: {why}')}", highlight=False)
    rows = {"bad": len(found.bad), "without_correction": found.without}
    if out is not None:
        known = [Example(c.text, c.answer) for c in found.corrections if c.answer]
        files.write_atomic(out, "".join(jsonl(known)).encode())
        unknown = len(found.corrections) - len(known)
        done = {"out": str(out), "mistakes": len(known), "without_answer": unknown, **rows}
        said_so = f"{plain(out)}: {len(known)} mistakes; {unknown} have no right answer"
    else:
        assert store is not None
        added, full = _add(store, found.corrections, limit, who=f"import of {file.name}")
        left = len(found.corrections) - added
        done = {"added": added, "known_or_left_out": left, "full": full, **rows}
        why = f" ({full})" if full else ""
        said_so = f"reports added: {added}; known already or left out: {left}{why}"
    if as_json:
        emit(done)
    else:
        typer.echo(said_so)
        typer.echo(f"bad rows: {len(found.bad)}; rows that correct nothing: {found.without}")
    if found.bad:
        raise typer.Exit(1)


def _add(url: str, corrections: list[Any], limit: int, who: str) -> tuple[int, str | None]:
    """Put corrections into a store's queue; returns how many are new, and why not more."""
    from tpatcher.store.reports import Reports
    from tpatcher.store.store import Store

    added, full = 0, None
    with closing(Store.existing(url)) as kept:
        queue = Reports(lambda: kept, limit)
        parts = list(batches(corrections, BLOCK))
        for part in track(parts, "importing", transient=True, console=console):
            n, full = queue.add_many(part, who)
            added += n
            if full:
                break
    return added, full
