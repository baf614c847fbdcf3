"""What the patches respond to: their own mistakes, earlier ones, and mistakes of nobody's."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tpatcher.example import Example
from tpatcher.models.model import Model, is_last
from tpatcher.models.traces import traces
from tpatcher.nets import ffn
from tpatcher.patches.neurons import Neurons, stack

SHOWN = 60  # neurons in a heat map


def measure(model: Model, mistakes: Sequence[Example]) -> dict[str, Any] | None:
    """Mean and deviation of |activation| (paper, Table 4), and the heat map (Figure 5).

    None where the model has no patches in its last layer. `mistakes` are test examples that
    the model got wrong before any edit.
    """
    patches = [p for p in model.patches if isinstance(p, Neurons) and is_last(p)]
    if not patches:
        return None
    act = ffn.find(model.net).act
    rows = stack(patches, -1, ffn.find(model.net).width)
    whose = torch.cat([torch.full((len(p.keys),), i, device="cpu") for i, p in enumerate(patches)])
    own = act(rows.response(torch.cat([_own_queries(p) for p in patches]))).T  # neuron × mistake
    earlier = whose[None] < whose[:, None]
    found = {"Edit": own.diagonal(), "Past-edit": own[earlier]}
    if mistakes:
        found["Random"] = act(rows.response(_wrong_queries(model.unpatched(), mistakes)))
    return {
        **{kind: _stated(values.abs()) for kind, values in found.items()},
        "heat": [[round(float(v), 3) for v in row[:SHOWN]] for row in own[:SHOWN]],
    }


def _own_queries(patch: Neurons) -> Tensor:
    """The query (n, d) that each neuron was made for: where it responds most."""
    response = patch.rows.response(patch.queries)  # (P, n)
    return patch.queries[response.argmax(0)]


def _wrong_queries(model: Model, mistakes: Sequence[Example]) -> Tensor:
    """The queries at the positions where the right token does not win."""
    seen = [trace for _, _, trace in traces(model, mistakes, reads="text")]
    return torch.cat([trace.queries[trace.best != trace.tokens].cpu() for trace in seen])


def _stated(values: Tensor) -> list[float]:
    if not values.numel():
        return [0.0, 0.0]
    return [round(float(values.mean()), 4), round(float(values.std(correction=0)), 4)]
