"""The dial of how far fixes reach, drawn for a user's own model and texts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from rich.progress import track
from rich.table import Table
from typer import Option

from tpatcher.cli.common import Device, Json, ModelName, app, console, emit, opened


@app.command()
def frontier(
    model: ModelName,
    file: Annotated[Path, Option(help="Mistakes, with rephrasings if there are some.")],
    traffic: Annotated[Path, Option(help="Ordinary texts; a tenth is measured on.")],
    out: Annotated[Path, Option(help="Where frontier.png and frontier.json go.")] = Path(
        "frontier"
    ),
    reads: Annotated[
        Literal["position", "text"], Option(help="What keys read: see docs/fix.md.")
    ] = "position",
    contrast: Annotated[int, Option(help="Contrast texts per fix.", min=0)] = 0,
    encoder: Annotated[
        str, Option(help="A sentence encoder, for the cache and for keys that read the text.")
    ] = "",
    most: Annotated[int, Option(help="Mistakes to try, at most.", min=1)] = 40,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Draw how far fixes reach against what they leave alone, and recommend f.

    Stopped, and run again with the same --out, it goes on where it was.
    """
    from tpatcher import files
    from tpatcher.bench import frontier as dial
    from tpatcher.data import read_examples, read_texts
    from tpatcher.editors.tpatcher import MaxMargin

    edited = opened(model, None, device, encoder=encoder if reads == "text" else "")
    measured = dial.Dial(edited, read_examples(file)[:most], read_texts(traffic))
    table = Table("", "", "fixed", "GR", "sisters kept", "traffic kept")
    out.mkdir(parents=True, exist_ok=True)
    solver, kept = MaxMargin(reads=reads, contrast=contrast), out / "points.json"
    settings = measured.points(solver, encoder, kept)
    label = "fixing all mistakes, once per setting"
    points = list(track(settings, label, len(dial.SETTINGS), console=console, transient=True))
    best = dial.recommended(points)
    files.write_atomic(out / "frontier.json", json.dumps(dial.to_json(points), indent=1).encode())
    dial.draw(points, out / "frontier.png")
    if as_json:
        emit(dial.to_json(points))
        return
    for p in points:
        cells = [f"{v:.3f}" if v is not None else "–" for v in list(asdict(p).values())[2:]]
        table.add_row(p.editor, f"{p.setting:g}", *cells, style="bold" if p is best else "")
    console.print(table)
    console.print(f"recommended: MaxMargin(crossing={best.setting:g}); picture: {out}/frontier.png")
