"""What the trained editors learn from: edits of the initial model, made up from ordinary examples.

An editor is to be trained on mistakes, but a model that is worth editing makes few. So, as De Cao
et al. do, where the model is right it is to be taught something else: another label, or the
answer to a similar question.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tpatcher.errors import BadInput, NotFixed
from tpatcher.example import Example, normal
from tpatcher.models.model import Model

DROPPED = 0.15  # share of words left out where an example has no rephrasings


@dataclass(frozen=True)
class Lesson:
    """One edit to be learned from, and texts whose answers should stay."""

    text: str
    answer: str  # what the model is to say
    said: str  # what it says
    rephrasing: str
    local: list[str]
    local_said: list[list[int]]  # what the model says to them, as labels or tokens


class Lessons:
    """Lessons for a model, drawn at random; the same draw gives the same lesson."""

    def __init__(
        self, model: Model, examples: Sequence[str | Example], pool: int, seed: int
    ) -> None:
        drawn = list(examples)
        if len(drawn) > pool:
            drawn = random.Random(seed).sample(drawn, pool)
        self.examples = [e if isinstance(e, Example) else Example(e, "") for e in drawn]
        if len(self.examples) < 4:
            raise BadInput(f"training needs at least 4 examples; found {len(self.examples)}")
        self.model = model
        self.targets: list[list[int]] = []
        with torch.inference_mode():
            for start in range(0, len(self.examples), 32):
                texts = [e.text for e in self.examples[start : start + 32]]
                self.targets += model.task.predict(model.net, texts)
        self.said = model.task.decode(self.targets)
        self.words = [frozenset(e.text.lower().split()) for e in self.examples]

    def draw(self, rng: random.Random, local: int) -> Lesson:
        """One lesson, with some texts to leave alone."""
        for _ in range(100):
            i = rng.randrange(len(self.examples))
            example = self.examples[i]
            answer = self.wanted(i, rng)
            others = [k for k in rng.choices(range(len(self.examples)), k=local + 2) if k != i]
            others = others[:local] or [i]
            try:
                self.model.task.target(example.text, answer)
            except NotFixed:  # an answer that cannot be aimed at, an empty one for instance
                continue
            return Lesson(
                text=example.text,
                answer=answer,
                said=self.said[i],
                rephrasing=rephrase(example, rng),
                local=[self.examples[k].text for k in others],
                local_said=[self.targets[k] for k in others],
            )
        raise BadInput("no 100th example has an answer that the model could be taught")

    def wanted(self, i: int, rng: random.Random) -> str:
        """The right answer where the model is wrong; another one where it is right."""
        example, said = self.examples[i], self.said[i]
        if example.answer and not self.model.accepts(example, said):
            return example.answer
        labels: list[str] | None = getattr(self.model.task, "labels", None)
        if labels:
            return rng.choice([label for label in labels if normal(label) != normal(said)])
        others = rng.sample(range(len(self.examples)), min(64, len(self.examples)))
        near = sorted(others, key=lambda k: -len(self.words[k] & self.words[i]))
        for k in near:
            other = self.examples[k].answer or self.said[k]
            if normal(other) != normal(said):
                return other
        return said

    def pairs(self, rng: random.Random, n: int) -> list[tuple[str, str]]:
        """n different texts, each with a rephrasing."""
        drawn = rng.sample(self.examples, min(n, len(self.examples)))
        return [(e.text, rephrase(e, rng)) for e in drawn]


def rephrase(example: Example, rng: random.Random) -> str:
    """One of the rephrasings; if there are none, the text with some words left out."""
    if example.rephrasings:
        return rng.choice(example.rephrasings)
    words = example.text.split()
    kept = [word for word in words if rng.random() > DROPPED]
    return " ".join(kept) or example.text
