"""Which examples a patched model still answers rightly, mostly without running it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace

import torch
from torch import Tensor

from tpatcher.batches import batches
from tpatcher.errors import NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model, is_last
from tpatcher.models.traces import Trace, trace, trace_forced, trace_own_answers
from tpatcher.nets import ffn
from tpatcher.nets.reading import Reads
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons, stack

BLOCK = 16_384  # positions that are looked at together
TOGETHER = 16  # answers that are followed together


class AnswerCache:
    """Examples with the answers of the unpatched model, from which those of a patched one follow.

    Where a patched model still prefers the same token at every position of the cached path, its
    answer is the same; where not, or where it is too close to call, the model itself is run. Where
    a patch answers in the place of the net, that is the answer.
    """

    def __init__(
        self,
        model: Model,
        examples: Sequence[Example],
        batch: int = 32,
        known: Trace | None = None,
        progress: bool = False,
    ) -> None:
        """`known` is the trace of the model's own answers, where an earlier time has left it."""
        self.examples = list(examples)
        self.unpatched = model.before_cacheable()
        self.usable = self.unpatched.is_cacheable
        self.reruns = 0  # examples that the last `correct` really ran
        self.targets: list[list[int]] = []
        self.spans: dict[int, Tensor] = {}  # the positions of each example
        self.right_before: list[bool] = []  # on the unpatched model
        self.unsure: set[int] = set()
        self.ids: tuple[str, ...] = ()  # the patches whose change `delta` holds
        self.trace = Trace(*(torch.empty(0) for _ in fields(Trace)))
        self.delta = torch.empty(0)  # (P, d): change of the feed-forward output by the patches
        if self.usable and self.examples:
            own = known or trace_own_answers(self.unpatched, self.examples, batch, progress)
            self._begin(model, own)
        elif not self.usable:
            self.right_before = model.correct(self.examples)

    def _begin(self, model: Model, trace: Trace) -> None:
        assert model.tail is not None
        self.trace = trace
        spans = torch.arange(len(trace.owner)).split(trace.owner.bincount().tolist())
        self.spans = dict(enumerate(spans))
        self.targets = [trace.tokens[span].tolist() for span in spans]
        answers = self.unpatched.task.decode(self.targets)
        pairs = zip(self.examples, answers, strict=True)
        self.right_before = [model.accepts(example, answer) for example, answer in pairs]
        # a cached path that its own logits do not confirm by more than rounding tells nothing
        unsure = (trace.best != trace.tokens) | (trace.gap < model.tail.rounding)
        self.unsure = set(trace.owner[unsure].tolist())

    def add(self, example: Example, patch: Patch | None) -> None:
        """Add a past fix, whose path is the right answer that its patch was made for.

        Without states to follow it by, the model itself will be run for all examples; for this one
        alone, if its patch answers by itself.
        """
        self.examples.append(example)
        if self.usable and patch is not None and patch.answers_itself:
            self.unsure.add(len(self.examples) - 1)
            self.spans[len(self.examples) - 1] = torch.arange(0)
            self.targets.append([])
            self.right_before.append(True)
            return
        known = isinstance(patch, Neurons) and is_last(patch) and patch.states.numel()
        self.usable = self.usable and bool(known)
        if not self.usable or not isinstance(patch, Neurons):
            return
        index, begin = len(self.examples) - 1, len(self.trace.tokens)
        device = self.unpatched.net.device
        own = Trace(
            queries=patch.queries.to(device),
            states=patch.states.to(device),
            tokens=patch.tokens,
            owner=torch.zeros_like(patch.tokens),
            best=patch.tokens,
            gap=torch.zeros(len(patch.tokens)),
        )
        width = ffn.find(self.unpatched.net).width
        if patch.queries.shape[1] == width:  # it reads its position; others may read the text
            seen = trace(self.unpatched, [example.text], [patch.tokens.tolist()], reads="text")
            own.queries = seen.queries.to(own.queries.device)
        more = replace(own, owner=own.owner + index)
        self.trace = Trace.join([self.trace, more]) if begin else more
        self.spans[index] = torch.arange(begin, begin + len(patch.tokens))
        self.targets.append(patch.tokens.tolist())
        self.right_before.append(True)
        self.ids = ()  # what the patches add is not known yet at the new positions

    @torch.no_grad()
    def correct(self, model: Model) -> list[bool]:
        """Whether each example is right now: equal to `model.correct(examples)`, but cheap."""
        if not (self.usable and model.is_cacheable):
            self.reruns = len(self.examples)
            return model.correct(self.examples)
        everyone = range(len(self.examples))
        spoken = self._spoken(model, everyone)
        rerun = sorted(self._changed(model, everyone) - spoken.keys())
        self.reruns = len(rerun)
        out = list(self.right_before)
        for i, text in spoken.items():
            out[i] = model.accepts(self.examples[i], text)
        real = model.correct([self.examples[i] for i in rerun])
        for i, right in zip(rerun, real, strict=True):
            out[i] = right
        return out

    @torch.no_grad()
    def answers(self, model: Model, indices: Sequence[int] | None = None) -> list[str]:
        """What the model says now, to some examples or all: equal to `model.answer`, but cheap."""
        asked = range(len(self.examples)) if indices is None else indices
        said, rerun = dict[int, str](), set(asked)
        if self.usable and model.is_cacheable:
            said = self._spoken(model, asked)
            rerun = self._changed(model, asked) - said.keys()
        known = [i for i in asked if i not in rerun and i not in said]
        said |= zip(known, self._decoded(known), strict=True)
        texts = [self.examples[i].text for i in sorted(rerun)]
        said |= zip(sorted(rerun), model.answer(texts), strict=True)
        return [said[i] for i in asked]

    def _spoken(self, model: Model, asked: Sequence[int]) -> dict[int, str]:
        """The answers that patches give in the place of the net, by example."""
        found = model.answers_of_patches([self.examples[i].text for i in asked])
        return {asked[k]: text for k, text in found.items()}

    def _changed(self, model: Model, asked: Sequence[int]) -> set[int]:
        """Which of these examples the net has to be run for."""
        self._follow(model)
        some = set(asked)
        return some & (self._moved(model, some) | self.unsure)

    def _decoded(self, indices: Sequence[int]) -> list[str]:
        """The cached answers."""
        return self.unpatched.task.decode([self.targets[i] for i in indices]) if indices else []

    def _follow(self, model: Model) -> None:
        """Bring `delta`, the change of every feed-forward output, up to the model's patches."""
        ids = tuple(p.id for p in model.patches)
        known = len(self.ids) if ids[: len(self.ids)] == self.ids else 0
        layer, queries = ffn.find(model.net), self.trace.queries
        if not known or len(self.delta) != len(queries):
            known = 0
            self.delta = queries.new_zeros(len(queries), layer.width)
        rows = stack(model.patches[known:], -1, layer.width).to(self.delta.device)
        if len(rows):
            for start in range(0, len(self.delta), BLOCK):
                some = slice(start, start + BLOCK)
                self.delta[some] += rows.delta(layer.act, queries[some])
        self.ids = ids

    def _moved(self, model: Model, among: set[int]) -> set[int]:
        """Those of these examples at one of whose positions another token wins, or nearly does."""
        assert model.tail is not None
        tail, trace = model.tail, self.trace
        if not len(trace.tokens):
            return set()
        shifted = tail.shift(trace.states, self.delta)
        changed = (shifted != trace.states).any(-1) | (trace.gap == 0).to(shifted.device)
        touched = changed.nonzero()[:, 0]
        here = touched.cpu()
        here = here[tail.may_flip(trace.states[touched], shifted[touched], trace.gap[here])]
        moved: set[int] = set()
        suspects = [i for i in trace.owner[here].unique().tolist() if i in among]
        for part in batches(suspects, 256):
            span = torch.cat([self.spans[i] for i in part])
            texts = [self.examples[i].text for i in part]
            forced = model.task.force(texts, [self.targets[i] for i in part])
            logits = model.task.as_decoded(model.net, forced, tail(shifted[span]))
            held = tail.confirms(logits, trace.tokens[span])
            moved |= set(trace.owner[span[~held]].tolist())
        return moved


@torch.no_grad()
def surely_says(model: Model, texts: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Whether the model gives these answers, found by one pass along each; False if unsure."""
    if not model.tail_is_exact or model.tail is None:
        return [False] * len(texts)
    task, tail, layer, rows = model.task, model.tail, ffn.find(model.net), model.rows(-1)
    reads: Reads = "text" if rows.width > layer.width else "position"
    said = dict[int, list[int]]()
    for i, pair in enumerate(zip(texts, answers, strict=True)):
        with suppress(NotFixed):  # the model cannot say it
            said[i] = task.target(*pair)
    sure, asked = [False] * len(texts), list(said)
    for part in batches(asked, TOGETHER):
        forced = task.force([texts[i] for i in part], [said[i] for i in part])
        seen, _ = trace_forced(model, forced, reads=reads)
        state = tail.shift(seen.states, rows.delta(layer.act, seen.queries))
        held = tail.confirms(task.as_decoded(model.net, forced, tail(state)), seen.tokens)
        lost = set(seen.owner[~held].tolist())
        for k, i in enumerate(part):
            sure[i] = k not in lost
    return sure
