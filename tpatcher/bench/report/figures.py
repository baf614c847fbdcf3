"""The report's pictures, as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tpatcher.bench.results import ResultRow
from tpatcher.bench.rows import BETA, CROSSING, LAYER, MEMORY

COLOURS = ("#2f6fdf", "#d9622b", "#2b9a66", "#8a56c2", "#b8860b", "#c2417c", "#4a8f9c", "#777777",
           "#6b8e23", "#cd5c5c", "#1f9bcf")  # fmt: skip
NAMES = {"edits": "ER", "train": "TrainR", "test": "TestR"}
METRICS = ("SR", "GR", "ER", "TrainR", "TestR")

Line = tuple[Sequence[float], Sequence[float]]  # x, y


@dataclass(frozen=True)
class Picture:
    """How a table's rows, those that have results, are drawn."""

    draw: Callable[[Sequence[ResultRow]], str]
    caption: str = ""
    size: Literal["wide", "single", "narrow"] = "wide"


def curves(rows: Sequence[ResultRow]) -> str:
    """ER, TrainR and TestR over the number of edits, one line per editor (paper, Figure 7)."""
    panels: dict[str, dict[str, Line]] = {}
    for key, name in NAMES.items():
        panels[name] = {}
        for row in rows:
            seen = [(i, *s.retained[key]) for i, s in enumerate(row.steps, 1) if key in s.retained]
            edits = [i for i, _, begin in seen if begin]
            panels[name][row.label] = (edits, [now / begin for _, now, begin in seen if begin])
    return _lines(panels, "edits")


def successes(rows: Sequence[ResultRow]) -> str:
    """SR of the edits so far, over their number (paper, Figure 4)."""
    found: dict[str, Line] = {}
    for row in rows:
        fixed = [step.fixed for step in row.steps]
        edits = range(1, len(fixed) + 1)
        found[row.label] = (edits, [sum(fixed[:i]) / i for i in edits])
    return _lines({"SR": found}, "edits", low=0.0)


def sweeps(rows: Sequence[ResultRow]) -> str:
    """The five metrics over the patched layer and over the memory's size (paper, Figure 6)."""
    panels = {}
    for setting in (LAYER, MEMORY):
        found = sorted((r for r in rows if r.row.sweep == setting), key=lambda r: r.row.value)
        x = [r.row.value for r in found]
        panels[setting] = {m: (x, [r.mean(m) for r in found]) for m in METRICS}
    return _lines(panels, "", low=0.5)


def frontier(rows: Sequence[ResultRow]) -> str:
    """GR against TestR, one line per preset, each point named by the setting that is swept."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for setting, colour in zip((CROSSING, BETA), COLOURS, strict=False):
        points = [row for row in rows if row.row.sweep == setting]
        x, y = [p.mean("TestR") for p in points], [p.mean("GR") for p in points]
        if points:
            axes.plot(x, y, "o-", color=colour, label=setting, linewidth=1.4, markersize=4)
        for point, at in zip(points, zip(x, y, strict=True), strict=True):
            axes.annotate(point.label, at, (4, 4), fontsize=7, textcoords="offset points")
    axes.set_xlabel("TestR", fontsize=9)
    axes.set_ylabel("GR", fontsize=9)
    axes.ticklabel_format(useOffset=False)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    return _svg(figure)


def _lines(panels: Mapping[str, Mapping[str, Line]], below: str, low: float = 0.9) -> str:
    """Panels side by side, with the same lines in each; the last point of a line is marked."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    width = 9 if len(panels) > 1 else 5.6
    figure = Figure(figsize=(width, 3.3), layout="constrained")
    for axes, (name, found) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for (label, (x, y)), colour in zip(found.items(), COLOURS, strict=False):
            axes.plot(x, y, color=colour, label=label, linewidth=1.6)
            axes.plot(x[-1:], y[-1:], "o", color=colour, markersize=4)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(below, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axhline(1, color="black", linewidth=0.5, alpha=0.4)
        axes.set_ylim(min(axes.get_ylim()[0], low), 1.02)
    handles, labels = axes.get_legend_handles_labels()
    columns = min(len(labels), 5)
    figure.legend(
        handles, labels, fontsize=8, frameon=False, loc="outside lower center", ncols=columns
    )
    return _svg(figure)


def heats(rows: Sequence[ResultRow]) -> str:
    """Heat maps, patch × mistake: a good editor shows the diagonal only (paper, Figure 5)."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    active = {row.label: row.results[0].scores["activations"] for row in rows}
    found = {label: torch.tensor(a["heat"]) for label, a in active.items() if a}
    if not found:
        return ""
    figure = Figure(figsize=(9, 2.4) if len(found) > 1 else (4.2, 3.6), layout="constrained")
    for axes, (name, values) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        image = axes.imshow(values.clamp(min=0).numpy(), cmap="Blues", interpolation="nearest")
        axes.set_title(name if len(found) > 1 else "", fontsize=9)
        axes.set_xlabel("mistake", fontsize=9)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("patch", fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.tick_params(labelsize=7)
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
        bar.ax.tick_params(labelsize=7)
    return _svg(figure)


def _svg(figure: object) -> str:
    """A figure as inline SVG: no background, and black is whatever the page's text is."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "x"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})  # type: ignore[attr-defined]
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"(fill|stroke): #000000", r"\1: currentColor", text)
    text = re.sub(r"(<text )", r'\1fill="currentColor" ', text)
    return re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"|<svg ', _svg_tag, text, count=1)


def _svg_tag(found: re.Match[str]) -> str:
    return '<svg role="img" style="width:100%;height:auto" ' + (found.group(1) or "")
