"""Many mistakes looked at before their turns come: in one batch, and in the same passes."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Draft, Mistake, PastFixes
from tpatcher.editors.tpatcher.solver import Solver
from tpatcher.errors import TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.positions import Followed, follow


@dataclass(frozen=True)
class Seen:
    """What was seen of an example before its turn."""

    followed: Followed | None = None
    draft: Draft | None = None

    def draft_for(self, mistake: Mistake) -> Draft | None:
        """The draft, if the same positions are wrong at its turn."""
        same = self.draft is not None and torch.equal(self.draft.wrong, mistake.wrong)
        return self.draft if same else None


class Ahead:
    """Many examples that are followed before their turn comes, a batch at a time.

    Patches of the last layer change nothing of it, so those pushed meanwhile do not matter. Keys
    are held against all that is known by then; what they are in the end is decided at their turn.
    """

    def __init__(
        self, solver: Solver, memory: Memory, examples: Sequence[Example], batch: int = 32
    ) -> None:
        self.solver, self.memory = solver, memory
        parts = max(1, round(len(examples) / batch))  # none of them of a few examples alone
        self.batch = math.ceil(len(examples) / parts)
        self.waiting = list(examples)
        self.found: dict[Example, Seen] = {}

    def take(self, model: Model, example: Example) -> Seen:
        """What following this example showed, which is then forgotten."""
        while example not in self.found and example in self.waiting:
            part, self.waiting = self.waiting[: self.batch], self.waiting[self.batch :]
            self._look_at(model, part)
        return self.found.pop(example, Seen())

    def _look_at(self, model: Model, part: Sequence[Example]) -> None:
        known = list[tuple[Example, list[int]]]()
        for example in part:
            with suppress(TPatcherError):  # its own edit will say what is wrong with it
                known.append((example, model.task.target(example.text, example.answer)))
        if not known:
            return
        examples, targets = zip(*known, strict=True)
        found = follow(model, [e.text for e in examples], targets, self.memory.reads)
        self.found |= {e: Seen(seen) for e, seen in zip(examples, found, strict=True)}
        self._draft(model, examples)

    def _draft(self, model: Model, examples: Sequence[Example]) -> None:
        mistakes = list[Mistake]()
        reads, texts = self.memory.reads, [example.text.strip() for example in examples]
        for example, text in zip(examples, texts, strict=True):
            with suppress(TPatcherError):  # as above
                mistake = Mistake.find(model, example, -1, reads, self.found[example].followed)
                alone = texts.count(text) == 1  # of two wishes for one text neither
                fits = mistake.queries.shape[1] == self.memory.width
                if alone and fits and len(mistake.wrong):
                    mistakes.append(mistake)
        past = PastFixes.of(model, texts, -1, reads)
        for mistake, draft in self.solver.together(mistakes, self.memory, past):
            example = mistake.example
            self.found[example] = replace(self.found[example], draft=draft)
