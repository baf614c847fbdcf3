"""Probes: texts close to a fixed one that ask something else, and so must keep their answers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.example import Example, normal
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.models.traces import Trace

NOTHING_KNOWN = Phrases([])  # negating a claim takes no other texts


class Probes:
    """The probes of the examples edited so far, with f0's answers to them.

    A probe is kept if the edited model answers it as f0 did, or rightly where the right answer is
    known. A probe to which f0 gives the fix's own answer is left out: it could not show a leak.
    """

    def __init__(self, model: Model) -> None:
        self.f0 = model.twin()
        self.fixed: set[str] = set()
        self.waiting: list[tuple[Example, Example]] = []  # a probe, the example it belongs to
        self.cache = AnswerCache(self.f0, [])

    def add(self, example: Example) -> None:
        """Add the probes of an example that was edited."""
        self.fixed.add(normal(example.text))
        self.waiting += [(probe, example) for probe in self._of(example)]

    def kept(self, model: Model) -> dict[str, tuple[int, int]]:
        """How many probes of each kind the edited model keeps, and how many there are."""
        if self.waiting:
            self._ask()
        if not self.cache.examples:
            return {}
        kept: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        for probe, right in zip(self.cache.examples, self.cache.correct(model), strict=True):
            if normal(probe.text) not in self.fixed:  # else a fix of its own may have changed it
                asked[probe.kind] += 1
                kept[probe.kind] += right
        return {kind: (kept[kind], asked[kind]) for kind in sorted(asked)}

    def _of(self, example: Example) -> Iterator[Example]:
        """The probes that came with an example, and a claim's negation."""
        for probe in example.unrelated:
            yield replace(probe, kind=probe.kind or "neighbours")
        if not self.f0.task.generates:
            made = NOTHING_KNOWN.contrast(replace(example, unrelated=()), 0, 0)
            for text in made.get("negations", []):
                if "not not" not in text:
                    yield Example(text, "", kind="negations")

    def _ask(self) -> None:
        """Ask f0 what it says to the probes that wait."""
        texts = list(dict.fromkeys(probe.text for probe, _ in self.waiting))
        answers = dict(zip(texts, self.f0.answer(texts), strict=True))
        known = {probe.text for probe in self.cache.examples}
        fresh = []
        for probe, fix in self.waiting:
            said = answers[probe.text]
            if probe.text not in known and not self.f0.accepts(fix, said):
                known.add(probe.text)
                true = tuple(a for a in (probe.answer, *probe.also) if a.strip())
                fresh.append(replace(probe, answer=said, also=true, unrelated=()))
        self.waiting = []
        if not fresh:
            return
        old, more = self.cache, AnswerCache(self.f0, fresh)
        trace = more.trace
        if old.examples and more.usable:
            later = replace(trace, owner=trace.owner + len(old.examples))
            trace = Trace.join([old.trace, later])
        known_trace = trace if more.usable else None
        self.cache = AnswerCache(self.f0, [*old.examples, *fresh], known=known_trace)
