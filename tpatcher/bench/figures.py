"""The report's pictures, as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tpatcher import ffn
from tpatcher.models import Model
from tpatcher.patch import Neurons
from tpatcher.sme import Step

COLOURS = ("#2f6fdf", "#d9622b", "#2b9a66", "#8a56c2", "#b8860b", "#c2417c", "#4a8f9c", "#777777")
NAMES = {"edits": "ER", "train": "TrainR", "test": "TestR"}


def curves(runs: Mapping[str, Sequence[Step]]) -> str:
    """ER, TrainR and TestR over the number of edits, one line per editor (paper, Figure 7)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.9), layout="constrained")
    for axes, (key, name) in zip(figure.subplots(1, 3), NAMES.items(), strict=True):
        for (editor, steps), colour in zip(runs.items(), COLOURS, strict=False):
            seen = [(i, *s.retained[key]) for i, s in enumerate(steps, 1) if key in s.retained]
            edits = [i for i, _, begin in seen if begin]
            rates = [now / begin for _, now, begin in seen if begin]
            axes.plot(edits, rates, color=colour, label=editor, linewidth=1.6)
            axes.plot(edits[-1:], rates[-1:], "o", color=colour, markersize=4)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("edits", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axhline(1, color="black", linewidth=0.5, alpha=0.4)
        low, _ = axes.get_ylim()
        axes.set_ylim(min(low, 0.9), 1.02)
    axes.legend(fontsize=8, frameon=False)
    return svg(figure)


def activations(model: Model, most: int = 60) -> Tensor:
    """How strongly each patch (rows) is activated by the mistake of each (columns)."""
    patches = [p for p in model.patches if isinstance(p, Neurons)][:most]
    act = ffn.find(model.net).act
    out = torch.zeros(len(patches), len(patches))
    for i, patch in enumerate(patches):
        for j, other in enumerate(patches):
            out[i, j] = act(other.queries @ patch.keys.T + patch.bias).max()
    return out


def heat(values: Tensor) -> str:
    """A heat map, patch × mistake: a good editor shows the diagonal only (paper, Figure 5)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values.clamp(min=0).numpy(), cmap="Blues", interpolation="nearest")
    axes.set_xlabel("mistake", fontsize=9)
    axes.set_ylabel("patch", fontsize=9)
    axes.tick_params(labelsize=8)
    bar = figure.colorbar(image, shrink=0.85)
    bar.ax.tick_params(labelsize=8)
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
