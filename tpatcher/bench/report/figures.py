"""The report's pictures, as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tpatcher.sme import Step

COLOURS = ("#2f6fdf", "#d9622b", "#2b9a66", "#8a56c2", "#b8860b", "#c2417c", "#4a8f9c", "#777777",
           "#6b8e23", "#cd5c5c", "#1f9bcf")  # fmt: skip
NAMES = {"edits": "ER", "train": "TrainR", "test": "TestR"}

Line = tuple[Sequence[float], Sequence[float]]  # where, how much


def curves(runs: Mapping[str, Sequence[Step]]) -> str:
    """ER, TrainR and TestR over the number of edits, one line per editor (paper, Figure 7)."""
    panels: dict[str, dict[str, Line]] = {}
    for key, name in NAMES.items():
        panels[name] = {}
        for editor, steps in runs.items():
            seen = [(i, *s.retained[key]) for i, s in enumerate(steps, 1) if key in s.retained]
            edits = [i for i, _, begin in seen if begin]
            panels[name][editor] = (edits, [now / begin for _, now, begin in seen if begin])
    return lines(panels, "edits")


def successes(runs: Mapping[str, Sequence[Step]]) -> str:
    """SR of the edits so far, over their number (paper, Figure 4)."""
    found: dict[str, Line] = {}
    for editor, steps in runs.items():
        fixed = torch.tensor([float(step.fixed) for step in steps]).cumsum(0)
        edits = list(range(1, len(steps) + 1))
        found[editor] = (edits, [float(f) / i for f, i in zip(fixed, edits, strict=True)])
    return lines({"SR": found}, "edits", low=0.0)


def lines(panels: Mapping[str, Mapping[str, Line]], below: str, low: float = 0.9) -> str:
    """Some panels side by side, with the same lines in each; the last point is marked."""
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
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside lower center",
                  ncols=min(len(labels), 5))  # fmt: skip
    return svg(figure)


def frontier(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """GR against TestR, one line per preset, each point named by its knob."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for (preset, points), colour in zip(found.items(), COLOURS, strict=False):
        x, y = [p[1] for p in points.values()], [p[0] for p in points.values()]
        axes.plot(x, y, "o-", color=colour, label=preset, linewidth=1.4, markersize=4)
        for name, (up, right) in points.items():
            axes.annotate(name, (right, up), fontsize=7, xytext=(4, 4), textcoords="offset points")
    axes.set_xlabel("TestR", fontsize=9)
    axes.set_ylabel("GR", fontsize=9)
    axes.ticklabel_format(useOffset=False)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    return svg(figure)


def heat(values: Tensor) -> str:
    """A heat map, patch × mistake: a good editor shows the diagonal only (paper, Figure 5)."""
    return heats({"": values}, (4.2, 3.6))


def heats(found: Mapping[str, Tensor], size: tuple[float, float] = (9, 2.4)) -> str:
    """Heat maps side by side, each with its own scale."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=size, layout="constrained")
    for axes, (name, values) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        image = axes.imshow(values.clamp(min=0).numpy(), cmap="Blues", interpolation="nearest")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("mistake", fontsize=9)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("patch", fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.tick_params(labelsize=7)
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
        bar.ax.tick_params(labelsize=7)
    return svg(figure)


def svg(figure: object) -> str:
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
