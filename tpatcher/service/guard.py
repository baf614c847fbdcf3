"""The guard: what must hold before a fix goes live."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.example import Example
from tpatcher.models.model import Model, is_last
from tpatcher.models.retention import AnswerCache
from tpatcher.nets import ffn
from tpatcher.nets.activation import thresholds
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons, rows
from tpatcher.service.recent import Traffic


@dataclass(frozen=True)
class Rules:
    """How much a fix may change before it is refused."""

    flips: int = 0  # canaries that may become wrong
    share: float = 0.01  # of traffic that may fire the fix, though its answer is another one
    shadow: bool = False  # only record what would have been refused


@dataclass
class Verdict:
    """What the guard found, and its reasons if it refuses."""

    right: bool
    broken: list[int]  # past fixes that held before and would not after
    canaries: int
    flipped: list[str]  # canaries that were right before and would not be after
    wrong_canaries: int  # that would be wrong in all, older fixes included
    traffic: int  # questions that the share was measured on
    share: float | None  # None: this kind of patch does not fire
    nearest: list[dict[str, Any]]  # the memory that responds most
    rephrasings: dict[str, str]  # what the given rephrasings would be answered
    shadow: bool = False
    reasons: list[str] = field(default_factory=list)

    @property
    def refuses(self) -> bool:
        return bool(self.reasons) and not self.shadow

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Guard:
    """Checks by really running the model; not for concurrent use, the writer alone asks it."""

    def __init__(
        self,
        model: Model,
        canaries: Sequence[Example],
        memory: Memory | None,
        traffic: Traffic,
        rules: Rules,
    ) -> None:
        self.rules, self.memory, self.traffic = rules, memory, traffic
        self.canaries = list(canaries)
        self.paths = AnswerCache(model, self.canaries)

    def check(
        self, before: Model, ids: Sequence[int], after: Model, patch: Patch, example: Example
    ) -> Verdict:
        """Compare the model that is live, wearing the fixes `ids`, with the one that would be."""
        share, traffic = self._share(patch, example)
        was = self.paths.correct(before) if self.canaries else []
        now = self.paths.correct(after) if self.canaries else []
        flipped = [
            c.text for c, a, b in zip(self.canaries, was, now, strict=True)
            if a and not b and c.text != example.text
        ]  # fmt: skip
        verdict = Verdict(
            right=after.correct([example])[0],
            broken=[ids[i] for i in broken(before, after, patch, example)],
            canaries=len(self.canaries),
            flipped=flipped[:20],
            wrong_canaries=len(now) - sum(now),
            traffic=traffic,
            share=share,
            nearest=self._nearest(patch, example),
            rephrasings=dict(
                zip(example.rephrasings, after.answer(example.rephrasings), strict=True)
            ),
            shadow=self.rules.shadow,
        )
        if not verdict.right:
            said = after.answer([example.text])[0]
            verdict.reasons.append(f"the answer would be {said!r}, not {example.answer!r}")
        if verdict.broken:
            numbers = ", ".join(map(str, verdict.broken[:10]))
            verdict.reasons.append(f"{len(verdict.broken)} past fixes would break: {numbers}")
        if len(flipped) > self.rules.flips:
            verdict.reasons.append(
                f"{len(flipped)} of {len(self.canaries)} canaries would become wrong "
                f"(allowed: {self.rules.flips}), such as {flipped[0]!r}"
            )
        if share is not None and share > self.rules.share:
            verdict.reasons.append(
                f"{share:.1%} of traffic would fire it (allowed: {self.rules.share:.1%})"
            )
        return verdict

    def _share(self, patch: Patch, example: Example) -> tuple[float | None, int]:
        """The share of the latest questions, and of the memory, that would fire the patch.

        Where the patch's own answer is given already it may fire freely, so those do not count.
        """
        if not (isinstance(patch, Neurons) and is_last(patch)):
            return None, 0
        own = {example.text, *example.rephrasings}
        asked = {a.text: a for a in self.traffic.latest() if a.text not in own}
        fires, n = 0, len(asked)
        for one in asked.values():
            hit = (one.queries @ patch.keys.T + patch.bias > 0).any(-1)
            fires += bool((hit & ~torch.isin(one.tokens, patch.tokens)).any())
        memory = self.memory
        if memory is not None:
            hit = (memory.respond(patch.keys) + patch.bias[:, None] > 0).any(0)
            hit[memory.rows_of(sorted(own))] = False
            if memory.answers is not None:
                hit &= ~torch.isin(memory.answers, patch.tokens)
            fires += int(hit.sum()) if memory.owner is None else len(memory.owner[hit].unique())
            n += len(memory.texts) or len(memory)
        return (fires / n if n else 0.0), n

    def _nearest(self, patch: Patch, example: Example) -> list[dict[str, Any]]:
        """The five texts of the memory that respond most to the patch."""
        if self.memory is None or not (isinstance(patch, Neurons) and is_last(patch)):
            return []
        response = (self.memory.respond(patch.keys) + patch.bias[:, None]).max(0).values
        response[self.memory.rows_of([example.text, *example.rephrasings])] = -torch.inf
        found: dict[str, float] = {}
        for row in response.argsort(descending=True)[:200].tolist():
            found.setdefault(self.memory.text_of(row), round(float(response[row]), 3))
            if len(found) == 5:
                break
        return [{"text": t, "response": r} for t, r in found.items() if r > -1e30]


@torch.no_grad()
def broken(before: Model, after: Model, patch: Patch, example: Example) -> list[int]:
    """The places of past fixes that hold before and not after, by really running them.

    Only those that the tail cannot clear are run: with the queries and states that every fix
    carries, it tells what wins at each of their positions.
    """
    newest = {p.example.text.strip(): i for i, p in enumerate(before.patches) if p.example}
    newest.pop(example.text.strip(), None)  # the fix of this very text is what is superseded
    places = sorted(newest.values())
    if not places:
        return []
    if after.tail_is_exact and is_last(patch):
        places = _suspects(after, patch, places)
    examples = [e for i in places if (e := before.patches[i].example)]
    held = after.correct(examples)
    lost = [(i, e) for i, e, ok in zip(places, examples, held, strict=True) if not ok]
    right = before.correct([e for _, e in lost])
    return [i for (i, _), was in zip(lost, right, strict=True) if was]


def _suspects(after: Model, patch: Patch, places: Sequence[int]) -> list[int]:
    """The past fixes that the patch reaches and whose answer the tail does not confirm."""
    assert after.tail is not None
    act, out = ffn.find(after.net).act, []
    beta, _ = thresholds(act)
    keys, bias, values = rows(after.patches)
    mine, my_bias, _ = rows([patch])
    known: list[tuple[int, Neurons]] = []
    for i in places:
        past = after.patches[i]
        if isinstance(past, Neurons) and past.states.numel():
            known.append((i, past))
        else:
            out.append(i)
    if not known:
        return out
    # all of them in one product: there may be 10,000
    felt = torch.cat([p.queries for _, p in known]) @ mine.T + my_bias > 2 * min(beta, -1.0)
    touched = felt.any(-1).split([len(p.queries) for _, p in known])
    reached = [one for one, hit in zip(known, touched, strict=True) if hit.any()]
    for start in range(0, len(reached), 256):
        part = reached[start : start + 256]
        q = torch.cat([p.queries for _, p in part])
        delta = (act(q @ keys.T + bias) @ values).to(after.net.device)
        states = torch.cat([p.states for _, p in part]).to(after.net.device)
        two = after.tail(after.tail.shift(states, delta)).topk(2, dim=-1)
        sure = (two.values[:, 0] - two.values[:, 1]) > after.tail.rounding
        tokens = torch.cat([p.tokens for _, p in part])
        fine = (sure & (two.indices[:, 0] == tokens.to(sure.device))).cpu()
        for (i, _), ok in zip(part, fine.split([len(p.tokens) for _, p in part]), strict=True):
            if not ok.all():
                out.append(i)
    return sorted(out)
