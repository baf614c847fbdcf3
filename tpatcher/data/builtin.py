"""The built-in facts: a few thousand of them, as questions or as claims, without a download.

`facts/*.tsv` holds one relation per file, a fact per line: subject, answer, other right answers.
`facts/phrasings.json` holds the ways to say each relation. Those for training, testing and
rephrasing never overlap, so a model that does well on the last two knows facts, not sentences.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tpatcher.data.split import Split
from tpatcher.example import Example, matches

FACTS = Path(__file__).with_name("facts")
HELD_OUT = 0.15  # share of facts that the built-in models never see: what there is to edit
VALIDATION = 0.05  # share of trained facts that keep one training phrasing back for validation
BOTH = 0.4  # share of trained facts of which a true and a false claim are made
LABELS = ("REFUTES", "SUPPORTS")
DOUBLED = ("..", "!.", "?.", "??")


@dataclass(frozen=True, slots=True)
class Fact:
    """One true triple; `also` holds other right answers."""

    relation: str
    subject: str
    answer: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """What a model is to learn of a fact: how it is said, and the right answer to that."""

    fact: Fact
    claimed: str  # the answer that the text itself gives; a question gives none
    answer: str
    also: tuple[str, ...] = ()

    def text(self, template: str) -> str:
        """The item in the words of one template."""
        text = template.format(subject=self.fact.subject, answer=self.claimed)
        if text.endswith(DOUBLED):  # a name brought its own mark: "Washington, D.C."
            text = text[:-1]
        return "T" + text[1:] if text.startswith("the ") else text


@cache
def facts() -> tuple[Fact, ...]:
    """All built-in facts, in the order of their files."""
    found = []
    for path in sorted(FACTS.glob("*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines():
            subject, answer, *also = line.split("\t")
            found.append(Fact(path.stem, subject, answer, tuple(also)))
    return tuple(found)


@cache
def phrasings() -> Any:
    """Templates by relation, form (question or claim) and use (train, test or rephrase)."""
    return json.loads((FACTS / "phrasings.json").read_text(encoding="utf-8"))


def builtin_qa(seed: int = 0) -> Split:
    """The facts as questions, for a model that generates the answer."""
    rng = random.Random(seed)
    held, trained = _divide(rng)
    learned, asked = ([Item(f, "", f.answer, f.also) for f in part] for part in (trained, held))
    return _split(learned, asked, "question", rng)


def builtin_fc(seed: int = 0) -> Split:
    """The facts as claims to check: a true or a false one of each fact, of some trained ones both.

    Not of all: where no subject and no answer tells anything by itself, a small model that starts
    from nothing stays at chance for long before it finds out that the pair does.
    """
    rng = random.Random(seed)
    held, trained = _divide(rng)
    claims = []
    for i, fact in enumerate(trained):
        claims.append(_claim(fact, i % 2 == 0, rng))
        if rng.random() < BOTH:
            claims.append(_claim(fact, i % 2 == 1, rng))
    return _split(claims, [_claim(f, i % 2 == 0, rng) for i, f in enumerate(held)], "claim", rng)


@cache
def grouped(name: str) -> tuple[Example, ...]:
    """The training set with one example per item, its other phrasings as rephrasings.

    This is what an editor that is trained on rephrasings needs; the training set has an example
    per phrasing.
    """
    found: list[Example] = []
    said: set[str] = set()
    for example in (builtin_fc() if name == "builtin-fc" else builtin_qa()).train:
        if example.text not in said:
            found.append(example)
            said.update(example.rephrasings)
    return tuple(found)


def _divide(rng: random.Random) -> tuple[list[Fact], list[Fact]]:
    """Held-out and trained facts: the same ones for questions and claims of one seed."""
    shuffled = list(facts())
    rng.shuffle(shuffled)
    cut = round(len(shuffled) * HELD_OUT)
    return shuffled[:cut], shuffled[cut:]


def _claim(fact: Fact, truth: bool, rng: random.Random) -> Item:
    """A claim that is true, or false with another fact's answer.

    Drawing from facts, not from distinct answers, makes an answer as common in false claims as in
    true ones, so that the answer alone tells nothing.
    """
    said = fact.answer
    while not truth and matches(said, (fact.answer, *fact.also)):
        said = rng.choice(_of_relation(fact.relation)).answer
    return Item(fact, said, LABELS[truth])


@cache
def _of_relation(relation: str) -> tuple[Fact, ...]:
    return tuple(f for f in facts() if f.relation == relation)


def _split(trained: Sequence[Item], held: Sequence[Item], form: str, rng: random.Random) -> Split:
    train, val, test, edit = [], [], [], []
    for item in trained:
        ways = phrasings()[item.fact.relation][form]
        said = list(ways["train"])
        if rng.random() < VALIDATION:
            val.append(_example(item, item.text(said.pop(rng.randrange(len(said))))))
        texts = [item.text(t) for t in said]
        train += [_example(item, t, texts[:i] + texts[i + 1 :]) for i, t in enumerate(texts)]
        test.append(_example(item, item.text(rng.choice(ways["test"]))))
    for item in held:
        ways = phrasings()[item.fact.relation][form]
        others = [item.text(t) for t in ways["rephrase"]]
        edit.append(_example(item, item.text(rng.choice(ways["train"])), others))
    return Split(train=train, edit=edit, test=test, val=val)


def _example(item: Item, text: str, rephrasings: Sequence[str] = ()) -> Example:
    return Example(text, item.answer, also=item.also, rephrasings=tuple(rephrasings))
