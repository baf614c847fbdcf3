"""The guard: what must hold before a fix goes live."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from tpatcher.batches import batches
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.example import Conversation, Example
from tpatcher.models.model import Model, is_last
from tpatcher.models.retention import AnswerCache
from tpatcher.nets import ffn
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons, stack
from tpatcher.service.likeness import Likeness
from tpatcher.service.recent import Question

HIDDEN = "(hidden)"  # in the place of a text that is nobody's business


@dataclass(frozen=True)
class Rules:
    """How much a fix may change before it is refused."""

    max_flips: int = 0  # canaries that may become wrong
    max_firing_share: float = 0.01  # of the memory's texts with another answer
    shadow: bool = False  # only record what would have been refused
    private: bool = False  # name no text of the memory, of canaries or of recent questions
    abstention: str | None = None  # what a generator says instead of what is only known as wrong
    own_fixes_only: bool = False  # who is no admin may undo and supersede only what they fixed


@dataclass
class Verdict:
    """What the guard found, and its reasons if it refuses."""

    right: bool
    broken: list[int]  # past fixes that held before and would not after
    canaries: int
    flipped: list[str]  # canaries that were right before and would not be after
    wrong_canaries: int  # canaries that would be wrong, whichever fix is to blame
    traffic: int  # texts of the memory that the share was measured on
    share: float | None  # of those, how many would fire the fix; None: it is not of neurons
    nearest: list[dict[str, Any]]  # the texts of the memory that respond most
    rephrasings: dict[str, str]  # the answers to the rephrasings that came with the fix
    shadow: bool = False
    reasons: list[str] = field(default_factory=list)
    # Recent questions, and those of them with another answer that would fire the fix. They refuse
    # nothing: a mistake that many people meet is asked in many ways.
    asked: int = 0
    asked_firing: int = 0
    unlike: list[str] = field(default_factory=list)  # texts given as rephrasings that are none

    @property
    def refuses(self) -> bool:
        """Whether the fix must not go live."""
        return bool(self.reasons) and not self.shadow

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Guard:
    """Checks fixes by really running the model. Not thread-safe: only the writer asks it."""

    def __init__(
        self,
        model: Model,
        canaries: Sequence[Example],
        memory: Memory | None,
        rules: Rules,
        binding: Sequence[str] = (),
    ) -> None:
        """A guard; the canaries whose texts are `binding` only an admin may fix otherwise."""
        self.rules, self.memory, self.canaries = rules, memory, list(canaries)
        self.binding = {text.strip() for text in binding}
        self._canary_answers = AnswerCache(model, self.canaries)
        self._likeness = Likeness(memory) if memory is not None else None

    def check(
        self,
        before: Model,
        ids: Sequence[int],
        after: Model,
        patch: Patch,
        example: Example,
        recent: Sequence[Question] = (),
        *,
        by_admin: bool = False,
    ) -> Verdict:
        """Compare the live model, which carries the fixes `ids`, with the one that would be."""
        share, traffic = self._firing_share(patch, example)
        text = example.text.strip()
        was = self._canary_answers.correct(before) if self.canaries else []
        now = self._canary_answers.correct(after) if self.canaries else []
        flipped = [
            canary.text
            for canary, right_before, right_after in zip(self.canaries, was, now, strict=True)
            if right_before and not right_after and canary.text.strip() != text
        ]
        contradicted = not by_admin and any(
            canary.text.strip() == text in self.binding and not right
            for canary, right in zip(self.canaries, now, strict=True)
        )
        verdict = Verdict(
            right=after.correct([example])[0],
            broken=[ids[i] for i in broken_fixes(before, after, patch, example)],
            canaries=len(self.canaries),
            flipped=[self._shown(t) for t in flipped[:20]],
            wrong_canaries=len(now) - sum(now),
            traffic=traffic,
            share=share,
            nearest=self._nearest(patch, example),
            rephrasings=dict(
                zip(example.rephrasings, after.answer(example.rephrasings), strict=True)
            ),
            shadow=self.rules.shadow,
            asked=len(recent),
            asked_firing=_firing(patch, example, recent),
            unlike=self._likeness.unlike(before, example) if self._likeness else [],
        )
        if verdict.unlike and not by_admin:
            verdict.reasons.append(
                f"{len(verdict.unlike)} of {len(example.rephrasings)} rephrasings are unlike the "
                f"text, such as {verdict.unlike[0]!r}: fix them by themselves, or ask an admin"
            )
        if contradicted:
            verdict.reasons.append(
                "this is a canary of the operator's: only an admin may change it"
            )
        if not verdict.right:
            answer = after.answer([example.text])[0]
            verdict.reasons.append(f"the answer would be {answer!r}, not {example.answer!r}")
        if verdict.broken:
            numbers = ", ".join(map(str, verdict.broken[:10]))
            verdict.reasons.append(f"{len(verdict.broken)} past fixes would break: {numbers}")
        if len(flipped) > self.rules.max_flips:
            verdict.reasons.append(
                f"{len(flipped)} of {len(self.canaries)} canaries would become wrong "
                f"(allowed: {self.rules.max_flips}), such as {self._shown(flipped[0])!r}"
            )
        if share is not None and share > self.rules.max_firing_share:
            verdict.reasons.append(
                f"{share:.1%} of traffic would fire it (allowed: {self.rules.max_firing_share:.1%})"
            )
        return verdict

    def _shown(self, text: str) -> str:
        return HIDDEN if self.rules.private else text

    def _firing_share(self, patch: Patch, example: Example) -> tuple[float | None, int]:
        """The share of the memory's texts that would fire the patch, and of how many.

        Texts that get the patch's own answer already do not count: it may fire there.
        """
        if not (isinstance(patch, Neurons) and is_last(patch)):
            return None, 0
        memory = self.memory
        if memory is None:
            return 0.0, 0
        hit = (memory.respond(patch.keys) + patch.bias[:, None] > 0).any(0)
        hit[memory.rows_of(sorted({example.text, *example.rephrasings}))] = False
        if memory.answers is not None:
            hit &= ~torch.isin(memory.answers, patch.tokens)
        firing = int(hit.sum()) if memory.owner is None else len(memory.owner[hit].unique())
        n = len(memory.texts) or len(memory)
        return firing / n, n

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
        return [{"text": self._shown(t), "response": r} for t, r in found.items() if r > -1e30]


def _firing(patch: Patch, example: Example, recent: Sequence[Question]) -> int:
    """How many recent questions with another answer would fire the patch."""
    if not (isinstance(patch, Neurons) and is_last(patch)):
        return 0
    own, firing = {example.text, *example.rephrasings}, 0
    if isinstance(example.text, Conversation):  # a question is remembered by its last turn
        own.add(str(example.text.messages[-1].get("content")))
    for question in recent:
        hit = (patch.rows.response(question.queries) > 0).any(-1)
        fires = bool((hit & ~torch.isin(question.tokens, patch.tokens)).any())
        firing += fires and question.text not in own
    return firing


@torch.no_grad()
def broken_fixes(before: Model, after: Model, patch: Patch, example: Example) -> list[int]:
    """The indices of past fixes that hold before and not after, found by really running them.

    Fixes that the tail clears are not run: with the queries and states that every fix carries,
    it tells what wins at each of their positions.
    """
    newest = {p.example.text.strip(): i for i, p in enumerate(before.patches) if p.example}
    newest.pop(example.text.strip(), None)  # an earlier fix of the same text is superseded
    indices = sorted(newest.values())
    if not indices:
        return []
    if after.tail_is_exact and is_last(patch):
        indices = _suspects(after, patch, indices)
    examples = [e for i in indices if (e := before.patches[i].example)]
    right_after = after.correct(examples)
    lost = [(i, e) for i, e, ok in zip(indices, examples, right_after, strict=True) if not ok]
    right_before = before.correct([e for _, e in lost])
    return [i for (i, _), ok in zip(lost, right_before, strict=True) if ok]


def _suspects(after: Model, patch: Patch, places: Sequence[int]) -> list[int]:
    """The past fixes that the patch reaches and whose answer the tail does not confirm."""
    assert after.tail is not None
    out: list[int] = []
    layer = ffn.find(after.net)
    beta = layer.beta
    rows, mine = after.rows().to("cpu"), stack([patch], -1, layer.width)
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
    felt = mine.response(torch.cat([p.queries for _, p in known])) > 2 * min(beta, -1.0)
    touched = felt.any(-1).split([len(p.queries) for _, p in known])
    reached = [one for one, hit in zip(known, touched, strict=True) if hit.any()]
    for part in batches(reached, 256):
        delta = rows.delta(layer.act, torch.cat([p.queries for _, p in part]))
        states = torch.cat([p.states for _, p in part]).to(after.net.device)
        logits = after.tail(after.tail.shift(states, delta.to(after.net.device)))
        fine = after.tail.confirms(logits, torch.cat([p.tokens for _, p in part]))
        for (i, _), ok in zip(part, fine.split([len(p.tokens) for _, p in part]), strict=True):
            if not ok.all():
                out.append(i)
    return sorted(out)
