"""What the trained editors learn from: edits of the initial model, made up from ordinary examples.

An editor is to be trained on mistakes, but a model that is worth editing makes few. So, as De Cao
et al. (2021) do, where the model is right it is to be taught something else: another label, or the
answer to a similar question (theirs: another beam of the model). All examples are learned from;
what the model says to one is asked when it is drawn first.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpatcher.errors import BadInput, NotFixed
from tpatcher.example import Example, normal
from tpatcher.models.model import Model
from tpatcher.models.training import predict

DROPPED = 0.15  # share of words left out where an example has no rephrasings
TRIES = 100
LEAST = 4  # examples


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

    def __init__(self, model: Model, examples: Sequence[str | Example]) -> None:
        self.examples = [e if isinstance(e, Example) else Example(e, "") for e in examples]
        if len(self.examples) < LEAST:
            raise BadInput(f"training needs at least {LEAST} examples; found {len(self.examples)}")
        self.model = model
        self._targets: dict[int, list[int]] = {}  # the initial model's, of what was drawn
        self._words = [frozenset(e.text.lower().split()) for e in self.examples]
        self._with_word: dict[str, list[int]] = defaultdict(list)
        for i, words in enumerate(self._words):
            for word in words:
                self._with_word[word].append(i)

    def draw(self, rng: random.Random, n: int, n_local: int) -> list[TrainingEdit]:
        """n training edits, each with at most `n_local` texts whose answers should stay."""
        made: list[TrainingEdit] = []
        for _ in range(TRIES):
            drawn = [self._indices(rng, n_local) for _ in range(n - len(made))]
            self._ask(i for one in drawn for i in one)
            edits = (self._edit(rng, i, local) for i, *local in drawn)
            made += [edit for edit in edits if edit]
            if len(made) == n:
                return made
        raise BadInput(
            f"{TRIES} random examples in a row had no answer that the tokenizer can express; give "
            "examples with answers"
        )

    def pairs(self, rng: random.Random, n: int) -> list[tuple[Example, str]]:
        """n different examples, each with a rephrasing; half of them are near to the others.

        Near ones share their rarest word, mostly the name of what is asked about, and so are the
        hard negatives of a scope classifier.
        """
        n = min(n, len(self.examples))
        drawn = dict.fromkeys(rng.sample(range(len(self.examples)), n))
        for i in list(drawn)[: n // 2]:
            if (near := self._near(i, rng)) is not None and near not in drawn:
                drawn.popitem()
                drawn = {near: None, **drawn}
        return [(self.examples[i], rephrase(self.examples[i], rng)) for i in drawn]

    def _indices(self, rng: random.Random, n_local: int) -> list[int]:
        """An example to edit and, after it, those that should stay."""
        i = rng.randrange(len(self.examples))
        others = [k for k in rng.choices(range(len(self.examples)), k=n_local + 2) if k != i]
        return [i, *(others[:n_local] or [i])]  # itself if there is no other, or none is wanted

    def _edit(self, rng: random.Random, i: int, local: list[int]) -> TrainingEdit | None:
        """The edit of an example; None if the model cannot give the answer, as an empty one."""
        example, before = self.examples[i], self._model_answer(i)
        answer = self._new_answer(i, rng)
        try:
            self.model.task.target(example.text, answer)
        except NotFixed:
            return None
        return TrainingEdit(
            text=example.text,
            answer=answer,
            model_answer=before,
            rephrasing=rephrase(example, rng),
            local_texts=[self.examples[k].text for k in local],
            local_targets=[self._targets[k] for k in local],
        )

    def _ask(self, indices: Iterable[int]) -> None:
        """Run the initial model on those of these examples that it was not asked yet."""
        new = [i for i in dict.fromkeys(indices) if i not in self._targets]
        texts = [self.examples[i].text for i in new]
        self._targets.update(zip(new, predict(self.model, self.model.net, texts), strict=True))

    def _model_answer(self, i: int) -> str:
        self._ask([i])
        return self.model.task.decode([self._targets[i]])[0]

    def _new_answer(self, i: int, rng: random.Random) -> str:
        """The right answer where the model is wrong; another one where it is right."""
        example, before = self.examples[i], self._model_answer(i)
        if example.answer and not self.model.accepts(example, before):
            return example.answer
        labels: list[str] | None = getattr(self.model.task, "labels", None)
        if labels:
            return rng.choice([label for label in labels if normal(label) != normal(before)])
        others = rng.sample(range(len(self.examples)), min(64, len(self.examples)))
        for k in sorted(others, key=lambda k: -len(self._words[k] & self._words[i])):
            other = self.examples[k].answer or self._model_answer(k)
            if normal(other) != normal(before):
                return other
        return before

    def _near(self, i: int, rng: random.Random) -> int | None:
        """Another example with the rarest word that this one shares with any."""
        shared = [word for word in sorted(self._words[i]) if len(self._with_word[word]) > 1]
        if not shared:
            return None
        rarest = min(shared, key=lambda word: len(self._with_word[word]))
        near, own = rng.choice(self._with_word[rarest]), self.examples[i]
        other = self.examples[near]
        # where answers are texts, an equal one may be to the same question
        same = self.model.task.generates and normal(other.answer) == normal(own.answer)
        return None if same or other.text == own.text else near


def rephrase(example: Example, rng: random.Random) -> str:
    """One of the rephrasings; if there are none, the text with some words left out."""
    if example.rephrasings:
        return rng.choice(example.rephrasings)
    words = example.text.split()
    kept = [word for word in words if rng.random() > DROPPED]
    return " ".join(kept) or example.text
