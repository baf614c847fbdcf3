"""Contrast: texts much like a mistake that ask something else, which its key must leave alone.

A key that reads the whole text would fire on everything about the same subject. So each fix is
held against sisters (the same subject, something else asked of it), neighbours (the same asked of
another subject), namesakes (of one with a similar name), and the mistake negated or with another
number. They are made of the memory's own texts, without a grammar: a subject is the run of words
that are rarest there, and what is left of a text is the frame that other subjects fit into.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from random import Random

from tpatcher.example import Example

RARE = 0.002  # share of texts with a word, below which it speaks for a subject
NAME = 1.5  # what a capital letter counts for
COMMON = 0.05  # above which a word says nothing about what is asked
GAP = "\0"  # in a frame, where the subject stood
WORD = re.compile(r"\w+(?:[.-]\w+)*")
BARE = ("the {} of {} is", "{1} {0}", "{1}'s {0} is")  # what is asked, of whom, and little else
NEGATED = re.compile(r"\b(is|are|was|were|has|have|had|does|do|did|can|will)\b", re.I)
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Frame:
    """A text without its subject: what is asked."""

    text: str  # with a gap
    words: frozenset[str]  # that say what is asked

    def of(self, subject: str) -> str:
        """The text about a subject."""
        return self.text.replace(GAP, subject)

    @property
    def bare(self) -> str:
        """What is asked, in as few words as there are."""
        return " ".join(w for w in WORD.findall(self.text) if w.lower() in self.words)


class Phrases:
    """The subjects and frames of many texts."""

    def __init__(self, texts: Sequence[str], ordinary: Set[str] = frozenset()) -> None:
        """`ordinary` words, in lower case, are no part of a name even if no text has them."""
        self.texts, self.ordinary = texts, ordinary
        self.counts = Counter(word for text in texts for word in set(_words(text)))
        # a word that speaks for a subject counts as much as it is rarer than this
        self.rare = -math.log(max(RARE, 1.5 / max(1, len(texts))))

    def rarity(self, word: str) -> float:
        """-log of the share of texts that have the word."""
        return -math.log((self.counts[word.lower()] + 0.5) / max(1, len(self.texts)))

    def worth(self, word: str) -> float:
        """How much a word speaks for being part of a subject: rare words do, and names."""
        found = self.rarity(word) - self.rare
        if word[0].isupper() and self.counts[word.lower()] < COMMON * len(self.texts):
            return max(found, NAME)
        return max(found, -NAME)  # "of" or "the" may stand between two names

    def split(self, text: str) -> tuple[str, Frame] | None:
        """The subject and the frame of a text; None if it has no rare words, or only such."""
        spans = [m.span() for m in WORD.finditer(text)]
        best, where, total, begin = 0.0, None, 0.0, 0
        for i, (a, b) in enumerate(spans):  # the run of words with the largest sum
            if total <= 0:
                total, begin = 0.0, i
            total += self.worth(text[a:b])
            if total > best:
                best, where = total, (begin, i)
        if where is None or where == (0, len(spans) - 1):
            return None
        first, last = spans[where[0]][0], spans[where[1]][1]
        subject = text[first:last]
        frame = text[:first] + GAP + text[last:]
        common = COMMON * len(self.texts)
        said = {w for w in _words(frame) if self.counts[w] < common}
        return subject, Frame(frame, frozenset(said))

    @cached_property
    def known(self) -> tuple[list[Frame], list[str]]:
        """The frames of all texts, each once, and their subjects."""
        frames: dict[str, Frame] = {}
        subjects: dict[str, None] = {}
        for text in self.texts:
            if found := self.split(text):
                subjects[found[0]] = None
                if found[1].words:
                    frames[found[1].text.lower()] = found[1]
        return list(frames.values()), list(subjects)

    def contrast(
        self, example: Example, sisters: int = 24, neighbours: int = 6
    ) -> dict[str, list[str]]:
        """Texts to hold a fix of this example against, by kind; always the same ones.

        Sisters are as bare as can be: in the memory's own frames they are too much like the
        mistake's rephrasings, some of them even are ("born in" and "birthplace").
        """
        draw, text = Random(example.text), example.text
        own = {example.text.lower(), *(r.lower() for r in example.rephrasings)}
        found: dict[str, list[str]] = {"given": [e.text for e in example.unrelated]}
        found["negations"] = [NEGATED.sub(r"\1 not", text, count=1)]
        found["numbers"] = [NUMBER.sub(lambda m: str(int(m[0]) + 1), text)]
        parts = self.split(text)
        if parts is not None:
            subject, frame = parts
            frames, subjects = self.known
            others = [f for f in frames if f.bare and not f.words & frame.words]
            picked = draw.sample(others, min(sisters, len(others)))
            found["sisters"] = [
                BARE[i % len(BARE)].format(f.bare, subject) for i, f in enumerate(picked)
            ]
            near = [s for s in subjects if s.lower() not in text.lower()]
            picked_subjects = draw.sample(near, min(neighbours, len(near)))
            found["neighbours"] = [frame.of(s) for s in picked_subjects]
        return {
            kind: kept
            for kind, texts in found.items()
            if (kept := [t for t in dict.fromkeys(texts) if t.strip() and t.lower() not in own])
        }

    @cached_property
    def names(self) -> list[str]:
        """The words of all texts that are part of a name, each once; no numbers."""
        found = (text[a:b] for text in self.texts for a, b in self._named(text))
        return [word for word in dict.fromkeys(found) if not NUMBER.search(word)]

    def _named(self, text: str) -> list[tuple[int, int]]:
        """Where the words stand that are part of a name: a capital or a digit, and not common.

        The first word has a capital anyway: it is part of a name if the next one is.
        """
        words = list(WORD.finditer(text))
        least = -math.log(COMMON)
        marked = [
            bool(w[0][0].isupper() or NUMBER.search(w[0])) and self.rarity(w[0]) > least
            for w in words
        ]
        if marked[:1] == [True] and marked[1:2] != [True]:
            marked[0] = False
        return [word.span() for word, name in zip(words, marked, strict=True) if name]

    def namesakes(self, text: str, count: int) -> list[str]:
        """The same asked of somebody with a similar name: one word of it is another's.

        Of the second third half of that word is kept, of the last third all but its first or its
        last two letters. The digits of a number become others.
        """
        draw, words = Random(text), self._subject_words(text)
        if not words or not self.names:
            return []
        made = []
        for i in range(count):
            a, b = words[i % len(words)]
            other, part = draw.choice(self.names), 3 * i // count
            if NUMBER.search(text[a:b]):
                other = re.sub(r"\d", lambda _: draw.choice("0123456789"), text[a:b])
            elif text[a].islower():
                other = other.lower()
            changed = (b - a, (b - a + 1) // 2, min(2, b - a))[part]
            if part and draw.random() < 0.5:
                other = other[:changed] + text[a + changed : b]
            elif part:
                other = text[a : b - changed] + other[-changed:]
            made.append(text[:a] + other + text[b:])
        return [one for one in dict.fromkeys(made) if one.lower() != text.lower()]

    def _subject_words(self, text: str) -> list[tuple[int, int]]:
        """Where the words of a name stand, or if there is none, those of the subject.

        Words beside a name that no text has are part of it: those of a title in another language.
        Of a name that others have too, as a country's, such words are wherever they stand: statues
        in the United States are known by the statues.
        """
        if named := set(self._named(text)):
            spans = [word.span() for word in WORD.finditer(text)]
            marked = groupby(spans, lambda s: s in named or self._strange(text[slice(*s)]))
            runs = [list(run) for part, run in marked if part]
            usual = all(self.counts[text[a:b].lower()] for a, b in named)
            return [s for run in runs if usual or not named.isdisjoint(run) for s in run]
        if (parts := self.split(text[:1].lower() + text[1:])) is None:
            return []
        begin = parts[1].text.index(GAP)
        return [word.span() for word in WORD.finditer(text, begin, begin + len(parts[0]))]

    def _strange(self, word: str) -> bool:
        """Whether nobody uses a word but in a name."""
        return not self.counts[word.lower()] and word.lower() not in self.ordinary

    def restated(self, text: str) -> list[str]:
        """A text's own subject and what is asked of it, in the fewest words."""
        parts = self.split(text)
        if parts is None or not parts[1].bare:
            return []
        return [form.format(parts[1].bare, parts[0]) for form in BARE]

    def asked_otherwise(self, text: str, count: int) -> list[str]:
        """Other texts' frames about this text's subject, whole as they are."""
        parts = self.split(text)
        if parts is None:
            return []
        others = [f for f in self.known[0] if not f.words & parts[1].words]
        return [f.of(parts[0]) for f in Random(text).sample(others, min(count, len(others)))]


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]
