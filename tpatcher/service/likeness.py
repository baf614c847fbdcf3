"""Whether a text can be a rephrasing of another: by its words, or by what the model makes of it.

Rephrasings are what a fix must fire on, so whoever could name any text as one could turn round any
answer with a fix of something else. Of the built-in facts no honest rephrasing of 900 was refused,
and 3 to 5 of 100 texts drawn from the memory would pass.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.phrases import WORD
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.traces import trace

SHARED = 0.3  # of the words of the shorter text, rare ones counting more
NEAREST = 0.02  # of the memory's texts: a rephrasing lies nearer than all others
SAMPLE = 1000  # texts of the memory that distances are compared with


class Likeness:
    """Compares texts with the help of a memory, which knows rare words and usual distances."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._others: Tensor | None = None  # (n, w): whitened first queries of memory texts

    def unlike(self, model: Model, example: Example) -> list[str]:
        """The rephrasings of an example that are none."""
        doubtful = [
            text for text in example.rephrasings if self._shared(text, example.text) < SHARED
        ]
        if not doubtful or self._memory.owner is None:
            return []
        texts = [example.text, *doubtful]
        own, *found = self._whitened(model, texts, model.task.target(example.text, example.answer))
        usual = (self._sample() - own).norm(dim=1)
        far = [float((usual < (one - own).norm()).double().mean()) > NEAREST for one in found]
        return [text for text, is_far in zip(doubtful, far, strict=True) if is_far]

    def _shared(self, one: str, other: str) -> float:
        """How much of the shorter text's words the other has, each counted by its rarity."""
        first, second = _words(one), _words(other)
        least = min(self._weight(first), self._weight(second))
        return self._weight(first & second) / least if least > 0 else 1.0

    def _weight(self, words: set[str]) -> float:
        return sum(max(0.0, self._memory.phrases.rarity(word)) for word in words)

    def _whitened(self, model: Model, texts: Sequence[str], target: list[int]) -> Tensor:
        """The queries (n, w) at the first answer position of texts, whitened."""
        seen = trace(model, texts, [target] * len(texts), -1, self._memory.reads)
        return self._memory.whiten(seen.queries.cpu()[_first(seen.owner)])

    def _sample(self) -> Tensor:
        if self._others is None:
            assert self._memory.owner is not None
            first = _first(self._memory.owner)
            step = max(1, len(first) // SAMPLE)
            self._others = self._memory.whiten(self._memory.rows(first[::step][:SAMPLE]))
        return self._others


def _first(owner: Tensor) -> Tensor:
    """The first row of each owner."""
    return (owner.diff(prepend=torch.tensor([-1])) != 0).nonzero()[:, 0]


def _words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}
