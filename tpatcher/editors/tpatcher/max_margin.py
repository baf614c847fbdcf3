"""The default solver: max-margin keys, values on the tail, and a certificate.

Beyond the paper: the locality constraint (Eq. 12) holds on every memory query by construction
instead of by penalty, and what the patch does to memory and past fixes is checked exactly.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar

import torch
from torch import Tensor

from tpatcher.batches import batches
from tpatcher.editors import deadline
from tpatcher.editors.tpatcher import keys, values
from tpatcher.editors.tpatcher.check import Responses, check
from tpatcher.editors.tpatcher.contexts import contexts
from tpatcher.editors.tpatcher.contrast import Contrast, contrast_texts
from tpatcher.editors.tpatcher.crossing import Crossing, usual
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Draft, Mistake, PastFixes, make_patch
from tpatcher.editors.tpatcher.solver import Solver
from tpatcher.editors.tpatcher.together import keys_together, values_together, views
from tpatcher.errors import NotFixed
from tpatcher.example import Example, text_of
from tpatcher.models.model import Model
from tpatcher.models.positions import CachedPositions
from tpatcher.nets.reading import Reads
from tpatcher.nets.rows import Rows
from tpatcher.nets.tail import Tail
from tpatcher.patches.neurons import Neurons

ROUNDS = 16  # times that keys are solved again, further from what they would change
NEAREST = 0.25  # of the way from contrast texts to the mistake: those nearest to it are left out
AT_ONCE = 1 << 24  # mistakes whose keys are found together, times the memory's queries: bounds room
ATTEMPTS = 4  # times that tokens still wrong in the real answer are patched too


class TooNear(Exception):
    """Contrast texts, as rows of their trace, that no key tells apart from the mistake."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows


@dataclass(frozen=True)
class MaxMargin(Solver):
    """Keys of largest margin in a few passes over the memory; no training by steps."""

    name: ClassVar[str] = "fast"
    background: ClassVar[bool] = True
    reads: Reads = "position"  # type: ignore[misc]
    contexts: bool = True  # a question of a language model is fixed in other contexts too
    contrast: int = 0  # contrast texts that a key is held against, at most
    namesakes: int = 0  # the like for keys that read the text of a language model
    crossing: float | None = None  # f; None: by task and size of the memory
    duals: int | None = None  # None: by task
    # GeLU and SiLU dip below 0 before they rise, which pushes away from the target. A steeper
    # neuron with a smaller value dips as much less, over as much less of the query space.
    steepness: float = 16.0
    width: int = 128  # top responders that each pass adds to the dual
    # a rephrasing activates the neuron less than the mistake did: the target wins at all of these
    # activation levels, times the steepness, and at the mistake's own
    levels: tuple[float, ...] = (0.5, 2.0, 10.0)
    confidence: float = 0.9
    contenders: int = 64  # tokens per position that a value is first found against, then all
    own_level: float = 3.0  # the mistake's response where β is 0 (ReLU), times the steepness

    def items(self, examples: Sequence[str | Example]) -> Sequence[str | Example]:
        """The texts alone: the memory is of the model's own answers."""
        return [text_of(e) for e in examples]

    def check_memory(self, memory: Memory) -> None:
        memory.check_finite()

    def beside(self, model: Model, example: Example, memory: Memory) -> Sequence[str]:
        """Contexts; of a label, the rephrasings that are given and what it is held against.

        A few short texts in one batch take hardly longer than the mistake alone.
        """
        if model.task.generates:
            return contexts(model, example.text) if self.contexts else ()
        held, _ = contrast_texts(model, example, memory.phrases, self.contrast)
        return list(dict.fromkeys([*example.rephrasings, *held]))

    def together(
        self, mistakes: Sequence[Mistake], memory: Memory, past: PastFixes
    ) -> Iterator[tuple[Mistake, Draft]]:
        """What is cheaper to find for several mistakes at once: keys, and values for labels.

        What else goes into a key, as contrast, other views, or the text, is known at its turn.
        """
        if self.reads == "text" or self.contrast:
            return
        some = [m for m in mistakes if not m.example.rephrasings]
        some = [m for m in some if not self.beside(m.model, m.example, memory)]
        for part in batches(some, max(1, AT_ONCE // len(memory))):
            duals = self._crossing(part[0].model, memory).duals
            drafts = keys_together(part, memory, past, duals, self.width)
            if not part[0].model.task.generates:
                drafts = values_together(part, drafts, self._problem, self.confidence)
            yield from zip(part, drafts, strict=True)

    def solve(self, mistake: Mistake, memory: Memory, past: PastFixes) -> Neurons:
        """Neurons with which the real greedy answer is right."""
        others = self.contexts and contexts(mistake.model, mistake.example.text)
        if mistake.positions.reads == "text" or others:
            # a key that knows a rephrasing is of use only if all of the answer comes with it
            mistake = replace(mistake, unsure=self.confidence)
        patch, logits = self._solve_once(mistake, memory, past)
        model, example = mistake.model, mistake.example
        # what wins at every position of its own answer, by more than rounding, is what greedy
        # decoding says: no need to generate it
        if logits is None and isinstance(mistake.positions, CachedPositions):
            logits = mistake.positions.logits(patch.rows.to(mistake.logits.device))
        if logits is not None and mistake.right_by(logits):
            return patch
        for _ in range(ATTEMPTS):
            trial = model.twin()
            trial.push(patch)
            if trial.correct([example])[0]:
                return patch
            again = Mistake.find(trial, example, mistake.layer, mistake.positions.reads)
            if not len(again.wrong):
                break
            more, _ = self._solve_once(again, memory, past)
            patch = make_patch(mistake, patch.rows + more.rows, more.certificate)
        raise NotFixed(
            f"{example.text!r}: patched {len(patch.keys)} times, the model still says "
            f"{trial.answer([example.text])[0]!r} instead of {example.answer!r}"
        )

    def _solve_once(
        self, mistake: Mistake, memory: Memory, past: PastFixes
    ) -> tuple[Neurons, Tensor | None]:
        """Neurons for every wrong position, re-solved until memory and past fixes are untouched.

        Beside them the logits of the answer with them, where those came with the values.
        """
        began = perf_counter()
        must_avoid: frozenset[int] = frozenset()
        beta = self.steepness * mistake.positions.ffn.beta
        found: tuple[Tensor, Tensor, Tensor | None] | None = None
        with_first: Tensor | None = None  # keys with which values were found
        contrast = None
        if self.contrast or self.namesakes:
            contrast = Contrast.of(mistake, memory.phrases, self.contrast, self.namesakes)
        positives = views(mistake, self.contexts)
        for _ in range(ROUNDS):
            deadline.check()
            try:
                solved = self._keys(mistake, positives, memory, past, contrast, must_avoid, beta)
            except TooNear as near:  # contrast is for telling apart what can be told apart
                assert contrast is not None
                contrast = contrast.without(near.rows)
                continue
            key_rows, bias, responses = solved
            if found is None:
                levels = self._levels(mistake, key_rows, bias)
                found, with_first = self._values(mistake, key_rows, bias, levels), key_rows
            rows = Rows(key_rows, bias, found[0])
            flipped, certificate = check(mistake, memory, past, contrast, responses, rows)
            if not flipped:
                break
            if not flipped - must_avoid:  # Act(β) is still too large for these: lower β
                beta = 1.5 * beta
            must_avoid |= flipped
        else:
            raise NotFixed(
                f"{mistake.example.text!r} cannot be fixed alone: {len(flipped)} answers of the "
                "memory or of past fixes would change with it, however far the key stays from them"
            )
        own = (mistake.queries[mistake.wrong].cpu() * rows.keys).sum(-1) + rows.bias
        certificate = replace(
            certificate,
            response=tuple(round(float(r), 3) for r in own),
            confidence={
                str(level): round(float(p.min()), 4)
                for level, p in zip(levels, found[1], strict=True)
            },
            seconds=round(perf_counter() - began, 4),
        )
        return make_patch(mistake, rows, certificate), found[2] if with_first is key_rows else None

    def _crossing(self, model: Model, memory: Memory) -> Crossing:
        """The usual crossing, but for what the fields say."""
        found = usual(model, memory, bool(self.namesakes))
        fraction = found.fraction if self.crossing is None else self.crossing
        return replace(found, fraction=fraction, duals=self.duals or found.duals)

    def _keys(
        self,
        mistake: Mistake,
        positives: list[Tensor],
        memory: Memory,
        past: PastFixes,
        contrast: Contrast | None,
        must_avoid: frozenset[int],
        beta: float,
    ) -> tuple[Tensor, Tensor, Responses]:
        """Keys (n, d), bias (n,): zero between memory and mistake, all of the memory below β."""
        tokens, example = mistake.positions.trace.tokens, mistake.example
        extra, answers = [past.queries, mistake.queries.cpu()], [past.tokens, tokens]
        if contrast is not None:
            extra.append(contrast.trace.queries.cpu())
            answers.append(contrast.trace.best)
        crossing = self._crossing(mistake.model, memory)
        negatives = keys.Negatives(
            memory=memory,
            target=tokens[mistake.wrong.cpu()],
            is_mistake=memory.rows_of([example.text, *example.rephrasings]),
            extra=torch.cat(extra),
            extra_answers=torch.cat(answers),
            must_avoid=must_avoid,
            contrast=len(contrast.trace.tokens) if contrast else 0,
            own=range(len(past.queries), len(past.queries) + len(tokens)),
            own_margin=crossing.own_margin,
        )
        begin = mistake.draft.keys if mistake.draft and not (must_avoid or contrast) else ()
        found = keys.solve(positives, negatives, crossing.duals, self.width, begin)
        key_rows, bias, responses = [], [], []
        for key in found:
            zero, scale = self._threshold(mistake, negatives, key, crossing, beta)
            key_rows.append(key.direction * scale)
            bias.append(-zero * scale)
            responses.append((key.responses - zero) * scale)
        at_risk = torch.stack([key.at_risk for key in found])
        everyone = Responses(torch.stack(responses), at_risk, negatives.is_mistake)
        return torch.stack(key_rows), torch.tensor(bias), everyone

    def _threshold(
        self,
        mistake: Mistake,
        negatives: keys.Negatives,
        key: keys.Key,
        crossing: Crossing,
        beta: float,
    ) -> tuple[float, float]:
        """Where a key's response begins to fire the neuron, and what the response is scaled by."""
        own, least = key.response, 1e-5 * max(1.0, abs(key.response))
        contrast = slice(len(key.responses) - negatives.contrast, None)
        if own - key.nearest_contrast <= least:
            near = (own - key.responses[contrast] <= least) & key.at_risk[contrast]
            raise TooNear(near.nonzero()[:, 0])
        if own - key.nearest_negative <= least:
            raise NotFixed(_inseparable(mistake, negatives, key))
        # where nothing is at risk, any half-space will do
        side = key.top if key.top > -math.inf else own - max(1.0, abs(own))
        # between the others and the weakest view of the mistake, if that can be told apart at all
        end = key.weakest if key.weakest - side > least else own
        zero = end - (1 - crossing.fraction) * (end - side)
        usual = key.responses[: len(negatives.memory)]
        if key.nearest_contrast == side and zero - usual.mean() < crossing.rarity * usual.std():
            near = key.responses[contrast] >= side - NEAREST * (own - side)
            raise TooNear((near & key.at_risk[contrast]).nonzero()[:, 0])
        if not beta:
            return zero, self.steepness * self.own_level / (own - zero)
        return zero, -beta / (zero - side)

    def _levels(self, mistake: Mistake, key_rows: Tensor, bias: Tensor) -> tuple[float, ...]:
        """Activation levels at which the target has to win, up to what the mistake will have.

        A neuron that begins to fire close to what it must leave alone rises steeply.
        """
        own = (mistake.queries[mistake.wrong].cpu() * key_rows).sum(-1) + bias
        level = round(float(own.max()) / self.steepness, 1)
        return self.levels if level <= max(self.levels) else (*self.levels, level)

    def _values(
        self, mistake: Mistake, key_rows: Tensor, bias: Tensor, levels: tuple[float, ...]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (n, d), the target's probability (levels, n), and the answer's logits with them.

        Those are None where they are not known.
        """
        here, wrong, device = mistake.positions, mistake.wrong, mistake.logits.device
        barred, tokens = mistake.logits[wrong].isneginf(), mistake.tokens[wrong]
        keys_there, bias_there = key_rows.to(device), bias.to(device)
        if isinstance(here, CachedPositions):
            draft, states = mistake.draft, here.states[wrong]
            same = draft and levels == self.levels and torch.equal(draft.states, states)
            if draft and draft.values is not None and same:
                known = Rows(keys_there, bias_there, draft.values)
                return draft.values.cpu(), draft.probability, here.logits(known)

            def answer(v: Tensor) -> Tensor:
                return here.states_with(Rows(keys_there, bias_there, v))

            problem = self._problem(here.tail, states, barred, tokens, levels, answer)
            judged = self._on_tail(mistake, problem)
            return judged.values.cpu(), judged.probability, judged.answer

        # each step runs the model, so only the activation that the mistake really has is tried
        def logits(v: Tensor) -> Tensor:
            deadline.check()
            out = here.logits(Rows(keys_there, bias_there, v))
            return out[None, wrong].masked_fill(barred, -torch.inf)

        scale = mistake.queries[wrong, : here.ffn.width]
        found, probability = values.descend(logits, tokens, scale, self.confidence)
        return found.cpu(), probability.expand(len(levels), -1), None

    def _problem(
        self,
        tail: Tail,
        states: Tensor,
        barred: Tensor,
        tokens: Tensor,
        levels: tuple[float, ...] = (),
        answer: Callable[[Tensor], Tensor] | None = None,
    ) -> values.ValueProblem:
        """Values at all levels at once, without running the model."""
        return values.ValueProblem(
            tail=tail,
            states=states,
            scale=tail.split(states)[0] / self.steepness,
            levels=self.steepness * torch.tensor(levels or self.levels, device=states.device),
            barred=barred,
            tokens=tokens,
            answer=answer,
        )

    def _on_tail(self, mistake: Mistake, problem: values.ValueProblem) -> values.Evaluated:
        logits, tokens = mistake.logits[mistake.wrong], problem.tokens
        found = values.solve(problem, logits, self.confidence, self.contenders)
        never = ~found.wins.any(0)
        if never.any():
            raise NotFixed(
                f"the model's head does not say token {int(tokens[never][0])} of "
                f"{mistake.example.answer!r}: whatever a value does, another token stays above it"
            )
        return found


def _inseparable(mistake: Mistake, negatives: keys.Negatives, key: keys.Key) -> str:
    n = len(negatives.memory)
    nearest = [
        negatives.memory.text_of(i) if i < n else "a past fix, or this answer elsewhere"
        for i in key.nearest[:3]
    ]
    return (
        f"{mistake.example.text!r} cannot be told apart from texts in the memory that have another "
        f"answer; the nearest are: {'; '.join(nearest)} (no half-space holds the mistake, which "
        f"responds with {key.response:.3f}, and none of them, up to {key.nearest_negative:.3f})"
    )
