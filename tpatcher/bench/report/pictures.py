"""Which picture goes with which figure of the paper."""

import torch

from tpatcher.bench.experiments import label
from tpatcher.bench.report import figures
from tpatcher.bench.results import Sheet
from tpatcher.sme import Step


def picture(sheet: Sheet) -> str:
    """The figure of a sheet as SVG; empty if it has none, or no job of it is complete."""
    rows = sheet.by_row
    if not rows:
        return ""
    runs: dict[str, list[Step]] = {line.label: line.results[0].steps for line in rows.values()}
    match sheet.name:
        case "figure4":
            return figures.successes(runs)
        case "figure5":
            found = {line.label: line.results[0].said["activations"] for line in rows.values()}
            return figures.heats({k: torch.tensor(a["heat"]) for k, a in found.items() if a})
        case "figure6":
            named = {"layer": "patched layer, from the end", "memory": "memory examples"}
            return figures.lines({v: swept(sheet, k) for k, v in named.items()}, "", low=0.5)
        case "figure7":
            return figures.curves(runs)
        case "frontier":
            presets = {"fast, by f": "crossing", "paper, by β": "beta"}
            points = {
                name: {
                    label(row): (line.numbers["GR"][0], line.numbers["TestR"][0])
                    for row, line in rows.items()
                    if row.startswith(kind)
                }
                for name, kind in presets.items()
            }
            return figures.frontier({k: v for k, v in points.items() if v})
    return ""


def swept(sheet: Sheet, kind: str) -> dict[str, figures.Line]:
    """The five metrics over a layer or the memory's size."""
    found = {int(r.partition(":")[2]): line for r, line in sheet.by_row.items() if kind in r}
    x = sorted(found)
    return {m: (x, [found[i].numbers[m][0] for i in x]) for m in sheet.columns}
