"""The report of streams in the wild: every run in a folder, beside the published rows."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tpatcher import __version__, files
from tpatcher.bench.report import TEMPLATES
from tpatcher.bench.report.figures import STYLE
from tpatcher.bench.wild.stream import MEASURES

RUN, PAGE = "run.json", "report.html"
COLUMNS = {
    "Rel": "Rel",
    "Instruction": "with instruction",
    "Context": "Context",
    "Gen": "Gen",
    "Loc": "Loc",
    "Contrast": "Contrast",
    "ratio": "perplexity ratio",
    "kl": "KL",
    "prompts": "general prompts",
    "seconds": "s an edit",
    "megabytes": "MB an edit",
}
PANELS = {
    "what was edited": ("Rel", "Instruction", "Context", "Gen"),
    "what was not": ("Loc", "Contrast", "winners", "prompts"),
}


@cache
def published() -> dict[str, Any]:
    """The published rows, each with its protocol."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_bytes())
    return found


def write(out: Path, data: str, model: str, editor: str, command: str) -> Path:
    """Note what a run is of, and write the report of its folder's runs on the same data."""
    about = {"data": data, "model": model, "editor": editor, "command": command}
    files.write_atomic(out / RUN, json.dumps(about, indent=1).encode())
    page = out / PAGE
    files.write_atomic(page, html(data, runs(out.parent, data)).encode())
    return page


def runs(folder: Path, data: str) -> list[dict[str, Any]]:
    """The runs below a folder that are on this data, with their measurements."""
    found = []
    for file in sorted(folder.glob(f"*/{RUN}")):
        about, rows = json.loads(file.read_bytes()), file.with_name(MEASURES)
        if about["data"] == data and rows.exists():
            found.append({**about, "name": file.parent.name, "rows": json.loads(rows.read_bytes())})
    return found


def html(data: str, found: Sequence[Mapping[str, Any]]) -> str:
    """The page: a table of our runs and the published rows, and how ours went."""
    others = [row for row in published()["rows"] if row["data"] == data]
    template = Path(__file__).with_name("report.html.j2").read_text(encoding="utf-8")
    return TEMPLATES.from_string(template).render(
        data=data,
        runs=[run for run in found if run["rows"]],
        columns=COLUMNS,
        others=others,
        protocols=published()["protocols"],
        pictures=[_picture(run["rows"]) for run in found if run["rows"]],
        css=TEMPLATES.get_template("report.css").render(),
        version=__version__,
    )


def _picture(rows: Sequence[Mapping[str, Any]]) -> str:
    """How shares went with the number of edits, as inline SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 3.3), layout="constrained")
        for axes, (title, names) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            for name in names:
                points = [(r["edits"], r[name]) for r in rows if r.get(name) is not None]
                if points:
                    axes.plot(*zip(*points, strict=True), "o-", label=COLUMNS.get(name, name))
            axes.set(title=title, xlabel="edits", ylim=(0, 1.02))
            axes.legend()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    _, _, text = file.getvalue().partition("<svg ")
    return '<svg role="img" ' + re.sub(r"(fill|stroke): #000000", r"\1: currentColor", text)
