"""What a patch does to memory and past fixes, checked exactly."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, Past
from tpatcher.nets.activation import thresholds
from tpatcher.patches.neurons import rows


@dataclass(frozen=True)
class Felt:
    """How everything that keys must stay away from responds to them, (n, N + m)."""

    response: Tensor
    could: Tensor  # which of it could be hurt
    skip: Tensor  # rows of the memory that are the mistake itself


def certificate(
    mistake: Mistake,
    memory: Memory,
    past: Past,
    everyone: Felt,
    patch: tuple[Tensor, Tensor, Tensor],
) -> tuple[set[int], dict[str, Any]]:
    """What the patch does to memory and past fixes: rows whose answer changes, and the report."""
    response, n = everyone.response, len(memory)
    flat, _ = thresholds(mistake.at.place.act)  # the paper's β
    inside = torch.where(everyone.could, response, -torch.inf)
    report: dict[str, Any] = {
        "largest response of memory": _largest(inside[:, :n]),
        "largest response of past fixes": _largest(inside[:, n : n + len(past.ids)]),
        "memory above beta": int((inside[:, :n] > flat + 1e-4).any(0).sum()),
        "memory answers changed": None,
        "past fixes changed": None,
    }
    if not mistake.at.fast:
        return set(), report
    # Act is flat below its β; twice as far down nothing is left that a logit could feel
    felt = (response > 2 * min(flat, -1.0)).any(0)
    flipped: set[int] = set()
    if memory.states is not None and memory.answers is not None and memory.gap is not None:
        look = felt[:n].nonzero()[:, 0]
        look = look[~torch.isin(look, everyone.skip)]
        moved = _moved(mistake, memory.queries[look].float(), memory.states[look].float(),
                       memory.answers[look], memory.gap[look], patch)  # fmt: skip
        flipped = set(look[moved].tolist())
        report["memory answers changed"] = len(flipped)
    if past.states.numel() or not past.ids:
        look = felt[n : n + len(past.ids)].nonzero()[:, 0]
        gap = torch.zeros(len(look))  # past fixes lean on their own patches: always look
        moved = _moved(
            mistake, past.queries[look], past.states[look], past.tokens[look], gap, patch
        )
        report["past fixes changed"] = len({past.ids[i] for i in look[moved].tolist()})
        flipped |= {n + i for i in look[moved].tolist()}
    return flipped, report


@torch.no_grad()
def _moved(
    mistake: Mistake,
    queries: Tensor,
    states: Tensor,
    answers: Tensor,
    gap: Tensor,
    patch: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Which of these positions (m,) have another winner with the patch than without it.

    `answers` win there on the unpatched model, by `gap`.
    """
    at = mistake.at
    tail, device = at.tail, mistake.logits.device
    out = torch.zeros(len(queries), dtype=torch.bool)
    if not len(queries):
        return out
    base = states.to(device)
    delta = _delta(at.place.act, queries, patch).to(device)
    older = torch.zeros_like(delta)
    worn = rows(mistake.model.patches, mistake.layer)
    if len(worn[0]):
        older = _delta(at.place.act, queries, worn).to(device)
    after = tail.shift(base, older + delta)
    ask = torch.arange(len(queries))
    if tail.lipschitz is not None:
        step = (tail.hidden(after) - tail.hidden(base)).norm(dim=-1).cpu()
        ask = ask[2 * tail.lipschitz * step + tail.rounding >= gap]
    for part in ask.split(max(64, (1 << 22) // mistake.logits.shape[-1])):
        winner = tail(after[part]).argmax(-1).cpu()
        other = part[winner != answers[part]]  # by this patch, or by an older one already?
        if len(other):
            before = tail(tail.shift(base[other], older[other])).argmax(-1).cpu()
            out[other] = before != winner[winner != answers[part]]
    return out


def _delta(act: Any, queries: Tensor, patch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    keys, bias, given = patch
    return act(queries @ keys.T + bias) @ given  # type: ignore[no-any-return]


def _largest(responses: Tensor) -> float | None:
    finite = responses[responses.isfinite()]
    return round(float(finite.max()), 4) if len(finite) else None
