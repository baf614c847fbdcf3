"""The report's pictures, as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tpatcher.bench.results import ResultRow
from tpatcher.bench.rows import BETA, CROSSING, LAYER, MEMORY

COLOURS = ("#2f6fdf", "#d9622b", "#2b9a66", "#8a56c2", "#b8860b", "#c2417c", "#4a8f9c", "#777777",
           "#6b8e23", "#cd5c5c", "#1f9bcf")  # fmt: skip
STYLE = {
    "axes.prop_cycle": f"cycler('color', {COLOURS})", "axes.labelsize": 9, "axes.titlesize": 10,
    "axes.formatter.useoffset": False, "axes.spines.top": False, "axes.spines.right": False,
    "font.family": "sans-serif", "font.size": 8, "legend.frameon": False, "lines.markersize": 4,
    "svg.fonttype": "none", "svg.hashsalt": "x",
}  # fmt: skip
SIZES = {"wide": (9, 3.3), "single": (5.6, 3.3), "narrow": (4.2, 3.6)}  # inches
NAMES = {"edits": "ER", "train": "TrainR", "test": "TestR"}
METRICS = ("SR", "GR", "ER", "TrainR", "TestR")

Line = tuple[Sequence[float], Sequence[float]]  # x, y


@dataclass(frozen=True)
class Picture:
    """How a table's rows, those that have results, are drawn."""

    draw: Callable[[Any, Sequence[ResultRow]], None]  # on a figure of Matplotlib's
    caption: str = ""
    size: Literal["wide", "single", "narrow"] = "wide"

    def svg(self, rows: Sequence[ResultRow]) -> str:
        """Inline SVG: no background, and black is whatever the page's text is."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        file = io.StringIO()
        with rc_context(STYLE):
            figure = Figure(figsize=SIZES[self.size], layout="constrained")
            self.draw(figure, rows)
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        _, _, text = file.getvalue().partition("<svg ")
        return '<svg role="img" ' + re.sub(r"(fill|stroke): #000000", r"\1: currentColor", text)


def curves(figure: Any, rows: Sequence[ResultRow]) -> None:
    """ER, TrainR and TestR over the number of edits, one line per editor (paper, Figure 7)."""
    panels: dict[str, dict[str, Line]] = {}
    for key, name in NAMES.items():
        panels[name] = {}
        for row in rows:
            seen = [(i, *s.retained[key]) for i, s in enumerate(row.steps, 1) if key in s.retained]
            edits = [i for i, _, begin in seen if begin]
            panels[name][row.label] = (edits, [now / begin for _, now, begin in seen if begin])
    _lines(figure, panels, "edits")


def successes(figure: Any, rows: Sequence[ResultRow]) -> None:
    """SR of the edits so far, over their number (paper, Figure 4)."""
    found: dict[str, Line] = {}
    for row in rows:
        fixed = [step.fixed for step in row.steps]
        edits = range(1, len(fixed) + 1)
        found[row.label] = (edits, [sum(fixed[:i]) / i for i in edits])
    _lines(figure, {"SR": found}, "edits", low=0.0)


def sweeps(figure: Any, rows: Sequence[ResultRow]) -> None:
    """The five metrics over the patched layer and over the memory's size (paper, Figure 6)."""
    panels = {}
    for setting in (LAYER, MEMORY):
        found = [r for r in rows if r.row.sweep == setting]
        x = [r.row.value for r in found]
        panels[setting] = {m: (x, [r.mean(m) for r in found]) for m in METRICS}
    _lines(figure, panels, "", low=0.5)


def frontier(figure: Any, rows: Sequence[ResultRow]) -> None:
    """GR against TestR, one line per preset, each point named by the setting that is swept."""
    axes = figure.subplots()
    for setting in (CROSSING, BETA):
        points = {r.label: (r.mean("TestR"), r.mean("GR")) for r in rows if r.row.sweep == setting}
        if points:
            axes.plot(*zip(*points.values(), strict=True), "o-", label=setting)
        for label, at in points.items():
            axes.annotate(label, at, (4, 4), textcoords="offset points")
    axes.set(xlabel="TestR", ylabel="GR")
    axes.legend()


def _lines(
    figure: Any, panels: Mapping[str, Mapping[str, Line]], below: str, low: float = 0.9
) -> None:
    """Panels side by side, with the same lines in each; the last point of a line is marked."""
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, found) in zip(row, panels.items(), strict=True):
        for label, (x, y) in found.items():
            axes.plot(x, y, "o-", label=label, markevery=slice(-1, None))
        axes.set(title=name, xlabel=below)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.axhline(1, color="black", linewidth=0.5, alpha=0.4)
        axes.set_ylim(min(axes.get_ylim()[0], low), 1.02)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5))


def heats(figure: Any, rows: Sequence[ResultRow]) -> None:
    """Heat maps, patch × mistake: a good editor shows the diagonal only (paper, Figure 5)."""
    active = {row.label: row.results[0].scores["activations"] for row in rows}
    found = {label: a["heat"] for label, a in active.items() if a}
    if len(found) > 1:
        figure.set_figheight(2.4)
    panels = figure.subplots(1, max(1, len(found)), squeeze=False)[0]
    for axes, (name, values) in zip(panels, found.items(), strict=False):
        image = axes.imshow(values, cmap="Blues", interpolation="nearest", vmin=0)
        axes.set(title=name if len(found) > 1 else "", xlabel="mistake")
        axes.locator_params(nbins=5, integer=True)
        figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    panels[0].set_ylabel("patch")
