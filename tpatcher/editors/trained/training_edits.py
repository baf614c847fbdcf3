"""What the trained editors learn from: edits of the initial model, made up from ordinary examples.

An editor is to be trained on mistakes, but a model that is worth editing makes few. So, as De Cao
et al. (2021) do, where the model is right it is to be taught something else: another label, or the
answer to a similar question.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tpatcher.errors import BadInput, NotFixed
from tpatcher.example import Example, normal
from tpatcher.models.model import Model
from tpatcher.models.training import predict

DROPPED = 0.15  # share of words left out where an example has no rephrasings
TRIES = 100


@dataclass(frozen=True)
class TrainingEdit:
    """One edit to learn from, and texts whose answers should stay."""

    text: str
    answer: str  # what the edited model is to answer
    model_answer: str  # what the initial model answers
    rephrasing: str
    local_texts: list[str]  # the answers to these should stay
    local_targets: list[list[int]]  # those answers of the initial model, as labels or tokens


class TrainingEdits:
    """Training edits for a model, drawn at random; equal random states give equal edits."""

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
        # the initial model's answers, as labels or tokens
        self.targets = predict(model, model.net, [e.text for e in self.examples])
        self.model_answers = model.task.decode(self.targets)
        self._words = [frozenset(e.text.lower().split()) for e in self.examples]

    def draw(self, rng: random.Random, n_local: int) -> TrainingEdit:
        """One training edit with at most `n_local` texts whose answers should stay."""
        for _ in range(TRIES):
            i = rng.randrange(len(self.examples))
            example = self.examples[i]
            answer = self._new_answer(i, rng)
            others = [k for k in rng.choices(range(len(self.examples)), k=n_local + 2) if k != i]
            others = others[:n_local] or [i]
            try:
                self.model.task.target(example.text, answer)
            except NotFixed:  # an answer that the model cannot give, for instance an empty one
                continue
            return TrainingEdit(
                text=example.text,
                answer=answer,
                model_answer=self.model_answers[i],
                rephrasing=_rephrase(example, rng),
                local_texts=[self.examples[k].text for k in others],
                local_targets=[self.targets[k] for k in others],
            )
        raise BadInput(
            f"{TRIES} random examples in a row had no answer that the tokenizer can express; give "
            "examples with answers"
        )

    def _new_answer(self, i: int, rng: random.Random) -> str:
        """The right answer where the model is wrong; another one where it is right."""
        example, before = self.examples[i], self.model_answers[i]
        if example.answer and not self.model.accepts(example, before):
            return example.answer
        labels: list[str] | None = getattr(self.model.task, "labels", None)
        if labels:
            return rng.choice([label for label in labels if normal(label) != normal(before)])
        others = rng.sample(range(len(self.examples)), min(64, len(self.examples)))
        for k in sorted(others, key=lambda k: -len(self._words[k] & self._words[i])):
            other = self.examples[k].answer or self.model_answers[k]
            if normal(other) != normal(before):
                return other
        return before

    def pairs(self, rng: random.Random, n: int) -> list[tuple[str, str]]:
        """n different texts, each with a rephrasing."""
        drawn = rng.sample(self.examples, min(n, len(self.examples)))
        return [(e.text, _rephrase(e, rng)) for e in drawn]


def _rephrase(example: Example, rng: random.Random) -> str:
    """One of the rephrasings; if there are none, the text with some words left out."""
    if example.rephrasings:
        return rng.choice(example.rephrasings)
    words = example.text.split()
    kept = [word for word in words if rng.random() > DROPPED]
    return " ".join(kept) or example.text
