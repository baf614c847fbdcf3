"""What a patch does to memory and past fixes, checked exactly."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.contrast import Contrast
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.models.positions import CachedPositions
from tpatcher.nets.rows import Rows
from tpatcher.patches.certificate import Certificate


@dataclass(frozen=True)
class Responses:
    """How everything that keys must stay away from responds to them: N of memory, m further."""

    values: Tensor  # (n, N + m)
    at_risk: Tensor  # (n, N + m): what a neuron could hurt
    is_mistake: Tensor  # rows of the memory that are the mistake itself


def check(
    mistake: Mistake,
    memory: Memory,
    past: PastFixes,
    contrast: Contrast | None,
    responses: Responses,
    rows: Rows,
) -> tuple[set[int], Certificate]:
    """The indices of what changes with the neurons, and the certificate."""
    n, fixes = len(memory), slice(len(memory), len(memory) + len(past.ids))
    beta = mistake.positions.ffn.beta
    at_risk = torch.where(responses.at_risk, responses.values, -torch.inf)
    certificate = Certificate(
        memory_response=_largest(at_risk[:, :n]),
        past_fixes_response=_largest(at_risk[:, fixes]),
        memory_above_beta=int((at_risk[:, :n] > beta + 1e-4).any(0).sum()),
        memory=memory.counts,
    )
    if not isinstance(mistake.positions, CachedPositions):
        return set(), certificate
    # Act is flat below its β; twice as far down nothing is left that a logit could feel
    felt = (responses.values > 2 * min(beta, -1.0)).any(0)
    here, flipped = mistake.positions, set[int]()
    if memory.states is not None and memory.answers is not None and memory.gap is not None:
        some = felt[:n].nonzero()[:, 0]
        some = some[~torch.isin(some, responses.is_mistake)]
        queries = memory.rows(some)
        states = memory.states[some.to(memory.states.device)].float()
        changed = _changed(here, rows, queries, states, memory.answers[some], memory.gap[some])
        flipped |= set(some[changed].tolist())
        certificate = replace(certificate, memory_changed=len(flipped))
    if past.states.numel() or not past.ids:
        some = felt[fixes].nonzero()[:, 0]
        gap = torch.zeros(len(some))  # a past fix depends on its own patch: no gap is known
        queries, states = past.queries[some], past.states[some]
        changed = _changed(here, rows, queries, states, past.tokens[some], gap)
        broken = {past.ids[i] for i in some[changed].tolist()}
        certificate = replace(certificate, past_fixes_changed=len(broken))
        flipped |= {n + i for i in some[changed].tolist()}
    if contrast is not None and len(contrast.trace.tokens):
        seen, begin = contrast.trace, responses.values.shape[1] - len(contrast.trace.tokens)
        some = felt[begin:].nonzero()[:, 0]
        queries, states = seen.queries[some].cpu(), seen.states[some]
        changed = _changed(here, rows, queries, states, seen.best[some], seen.gap[some])
        flipped |= {begin + i for i in some[changed].tolist()}
        certificate = replace(certificate, contrast=contrast.counts())
    return flipped, certificate


@torch.no_grad()
def _changed(
    here: CachedPositions, rows: Rows, queries: Tensor, states: Tensor, answers: Tensor, gap: Tensor
) -> Tensor:
    """Where (m,) another token wins with the new neurons than without them.

    `answers` win on the unpatched model, by `gap`.
    """
    tail, act, device = here.tail, here.ffn.act, here.model.net.device
    out = torch.zeros(len(queries), dtype=torch.bool)
    if not len(queries):
        return out
    unpatched = states.to(device)
    delta = rows.delta(act, queries).to(device)
    older = here.rows.to("cpu").delta(act, queries).to(device)
    after = tail.shift(unpatched, older + delta)
    suspects = tail.may_flip(unpatched, after, gap).nonzero()[:, 0]
    for part in suspects.split(max(64, (1 << 22) // here.before_last.shape[-1])):
        winner = tail(after[part]).argmax(-1).cpu()
        other = winner != answers[part]  # by these neurons, or by older ones already?
        if other.any():
            moved = part[other]
            before = tail(tail.shift(unpatched[moved], older[moved])).argmax(-1).cpu()
            out[moved] = before != winner[other]
    return out


def _largest(responses: Tensor) -> float | None:
    found = float(responses.max()) if responses.numel() else -math.inf
    return round(found, 4) if math.isfinite(found) else None
