"""The fast preset of T-Patcher: max-margin keys, values on the tail, and a certificate.

Beyond the paper: the locality constraint (Eq. 12) holds on every memory query by construction
instead of by penalty, and what the patch does to memory and past fixes is checked exactly.
"""

import math
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from tpatcher.editors.tpatcher import keys as margin
from tpatcher.editors.tpatcher.check import Felt, certificate
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, Past, neurons
from tpatcher.editors.tpatcher.values import Place, on_tail, values
from tpatcher.errors import NotFixed
from tpatcher.models.traces import trace
from tpatcher.nets.activation import thresholds
from tpatcher.patches.neurons import Neurons

ROUNDS = 16  # times that keys are solved again, further from what they would change


# Crossing and duals where answers are labels and where they are tokens: a second dual gives zsRE
# 0.09 more GR at the same TestR, and FEVER nothing.
LABELS, TOKENS = (0.47, 1), (0.5, 2)
# The more queries a key stays clear of, the more seldom others come near it. Where answers are
# tokens, each doubling of the memory beyond KNOWN lets f fall by FALL; with labels it gains little.
KNOWN, FALL, LEAST = 45_000, 0.1, 0.2


@dataclass(frozen=True)
class Settings:
    """The knobs of the fast preset."""

    # f: where between memory and mistake the neuron begins to fire; None: as `chosen` has it
    crossing: float | None = None
    # GeLU and SiLU dip below 0 before they rise, which pushes away from the target. A steeper
    # neuron with a smaller value dips as much less, over as much less of the query space.
    steepness: float = 16.0
    # times that the dual is solved, each with one more pass over the memory; None as above
    rounds: int | None = None
    width: int = 128  # top responders that each pass adds to the dual
    # a rephrasing activates the neuron less than the mistake did: the target wins at all of these
    # activation levels, times the steepness
    levels: tuple[float, ...] = (0.5, 2.0, 10.0)
    confidence: float = 0.9
    contenders: int = 64  # tokens per position that a value is first found against, then all
    own_level: float = 3.0  # the mistake's pre-activation where β is 0 (ReLU), times the steepness


def solve(mistake: Mistake, memory: Memory, past: Past, settings: Settings) -> Neurons:
    """Neurons for every wrong position, re-solved until memory and past fixes are untouched."""
    began = perf_counter()
    hurt: frozenset[int] = frozenset()
    beta = settings.steepness * thresholds(mistake.at.place.act)[0]
    given: tuple[Tensor, Tensor] | None = None
    for _ in range(ROUNDS):
        keys, bias, felt = _keys(mistake, memory, past, settings, hurt, beta)
        given = given or _values(mistake, keys, bias, settings)
        patch = (keys, bias, given[0])
        flipped, report = certificate(mistake, memory, past, felt, patch)
        if not flipped:
            break
        if not flipped - hurt:  # even what is left of Act at β moves them: further down then
            beta = 1.5 * beta
        hurt |= flipped
    else:
        raise NotFixed(
            f"{mistake.example.text!r} cannot be fixed alone: {len(flipped)} answers of the memory "
            f"or of past fixes would change with it, however far the key stays from them"
        )
    own = (mistake.queries[mistake.wrong].cpu() * keys).sum(-1) + bias
    report |= {
        "response": [round(float(r), 3) for r in own],
        "margins": {str(level): round(float(p.min()), 4)
                    for level, p in zip(settings.levels, given[1], strict=True)},
        "seconds": round(perf_counter() - began, 4),
    }  # fmt: skip
    return neurons(mistake, *patch, "t-patcher", report)


def chosen(s: Settings, task: str, queries: int) -> tuple[float, int]:
    """Crossing and duals for a task and a memory of so many queries, where the settings are open.

    >>> [round(chosen(Settings(), "seq2seq", n)[0], 2) for n in (8_000, 45_000, 180_000, 10**7)]
    [0.5, 0.5, 0.3, 0.2]
    """
    f, rounds = LABELS if task == "classify" else TOKENS
    if task != "classify" and queries > KNOWN:
        f = max(LEAST, f - FALL * math.log2(queries / KNOWN))
    return f if s.crossing is None else s.crossing, rounds if s.rounds is None else s.rounds


def _keys(
    mistake: Mistake, memory: Memory, past: Past, s: Settings, hurt: frozenset[int], beta: float
) -> tuple[Tensor, Tensor, Felt]:
    """Keys (n, d) and bias (n,): zero between memory and mistake, all of the memory below β."""
    tokens, example = mistake.at.seen.tokens, mistake.example
    crowd = margin.Crowd(
        memory=memory,
        target=tokens[mistake.wrong.cpu()],
        skip=memory.rows_of([example.text, *example.rephrasings]),
        more=torch.cat([past.queries, mistake.queries.cpu()]),
        more_answers=torch.cat([past.tokens, tokens]),
        hurt=hurt,
    )
    f, rounds = chosen(s, mistake.model.task.name, len(memory))
    keys, bias, response, could = [], [], [], []
    for one in margin.keys(_positives(mistake), crowd, rounds, s.width):
        gap = one.own - one.top
        if gap <= 1e-5 * max(1.0, abs(one.own)):
            raise NotFixed(_crowded(mistake, crowd, one))
        if one.top == -math.inf:  # nothing could be hurt: any half-space will do
            gap = max(1.0, abs(one.own))
        cross = one.own - (1 - f) * gap
        scale = -beta / (f * gap) if beta else s.steepness * s.own_level / (one.own - cross)
        keys.append(one.key * scale)
        bias.append(-cross * scale)
        response.append((one.response - cross) * scale)
        could.append(one.could)
    felt = Felt(torch.stack(response), torch.stack(could), crowd.skip)
    return torch.stack(keys), torch.tensor(bias), felt


def _positives(mistake: Mistake) -> list[Tensor]:
    """For each wrong position, the queries (p, d) that its neuron must fire on."""
    wrong = mistake.wrong.cpu()
    seen = [mistake.queries.cpu()]
    texts = list(mistake.example.rephrasings)
    if texts:
        found = trace(mistake.model, texts, [mistake.target] * len(texts), mistake.layer)
        seen += list(found.queries.cpu().view(len(texts), -1, found.queries.shape[-1]))
    return [torch.stack([q[i] for q in seen]) for i in wrong]


def _values(mistake: Mistake, keys: Tensor, bias: Tensor, s: Settings) -> tuple[Tensor, Tensor]:
    """Values (n, d), and the target's probability at each level."""
    at, wrong = mistake.at, mistake.wrong
    barred = mistake.logits[wrong].isneginf()
    tokens = mistake.tokens[wrong]
    device = mistake.logits.device
    if at.fast:
        given, probability = _on_tail(mistake, barred, tokens, s)
    else:
        # each step runs the model, so only the activation that the mistake really has is tried
        def logits(v: Tensor) -> Tensor:
            out = at.logits(keys.to(device), bias.to(device), v)
            return out[None, wrong].masked_fill(barred, -torch.inf)

        given, probability = values(logits, tokens, mistake.queries[wrong], s.confidence)
        probability = probability.expand(len(s.levels), -1)
    return given.cpu(), probability


def _on_tail(
    mistake: Mistake, barred: Tensor, tokens: Tensor, s: Settings
) -> tuple[Tensor, Tensor]:
    """Values at all levels at once, without running the model."""
    at, wrong = mistake.at, mistake.wrong
    states = at.states[wrong]
    levels = s.steepness * torch.tensor(s.levels, device=states.device)
    place = Place(at.tail, states, at.tail.split(states)[0] / s.steepness, levels, barred, tokens)
    given, probability, wins = on_tail(place, mistake.logits[wrong], s.confidence, s.contenders)
    never = ~wins.any(0)
    if never.any():
        raise NotFixed(
            f"the model's head does not say token {int(tokens[never][0])} of "
            f"{mistake.example.answer!r}: whatever a value does, another token stays above it"
        )
    return given, probability


def _crowded(mistake: Mistake, crowd: margin.Crowd, one: margin.Key) -> str:
    n = len(crowd.memory)
    near = [crowd.memory.text_of(i) if i < n else "a past fix, or this answer elsewhere"
            for i in one.nearest[:3]]  # fmt: skip
    return (
        f"no half-space holds {mistake.example.text!r} and none of the memory: it responds with "
        f"{one.own:.3f}, and these respond up to {one.top:.3f}: {'; '.join(near)}"
    )
