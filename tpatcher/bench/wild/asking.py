"""What an edited language model answers: the edits, their rephrasings, and what is unrelated.

WILD (Yang et al. 2025): greedy, a natural stop, exact match of the whole answer, all edits
in place.
"""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from tpatcher.editors.tpatcher.contexts import INSTRUCTION
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.errors import BadInput
from tpatcher.example import Conversation, Example
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache, surely_says

UNKNOWN = "?"  # a right answer that nobody asks for
ARTICLES = re.compile(r"\b(a|an|the)\b")
# other words than those that T-Patcher edits with
SYSTEM = {"role": "system", "content": "You work for a quiz show. Be friendly and to the point."}
TALK = (
    {"role": "user", "content": "I am preparing a quiz for my friends on Saturday and need facts."},
    {
        "role": "assistant",
        "content": "What a nice idea! I can help you with facts about people, places, films, "
        "music, sports or science. Just ask me one question after the other.",
    },
)


def normalised(answer: str) -> str:
    """An answer as exact match compares it: lower case, no punctuation, no articles.

    >>> normalised("The  Hague.")
    'hague'
    """
    kept = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", kept).split())


@dataclass(frozen=True)
class Asked:
    """Shares of answers; None where nothing could be asked."""

    Rel: float  # the edits, asked as they were edited
    Instruction: float  # the same after WILD's instruction
    Context: float | None  # the same after a system prompt, and after an earlier turn
    Gen: float | None  # their rephrasings
    Loc: float | None  # unrelated questions, answered as before any edit
    Contrast: float | None  # questions about the same subject or of the same form, as before


def ask(model: Model, edits: Sequence[Example], contrast: Phrases | None = None) -> Asked:
    """Ask the model about some of its edits, and what is near them and far from them."""
    before = model.unpatched()
    near = [
        text
        for example in edits
        for kind, texts in (contrast.contrast(example) if contrast else {}).items()
        if kind not in ("given", "negations")  # Loc has these; a negated question asks nothing
        for text in texts[:1]
    ]
    near = Random(0).sample(near, min(len(near), len(edits)))  # as many as of the others
    far = [e.text for example in edits for e in example.unrelated[:1]]
    contexts = [c for c in ([SYSTEM], TALK) if _takes(model, c)]
    return Asked(
        Rel=_right(model, [(e.text, e) for e in edits]) or 0.0,
        Instruction=_right(model, [(INSTRUCTION.format(e.text), e) for e in edits]) or 0.0,
        Context=_right(model, [(_after(c, e.text), e) for e in edits for c in contexts]),
        Gen=_right(model, [(text, e) for e in edits for text in e.rephrasings]),
        Loc=_same(before, model, far),
        Contrast=_same(before, model, near),
    )


def sample(edits: Sequence[Example], n: int | None) -> list[Example]:
    """n of the edits, the same for the same edits."""
    return list(edits) if n is None or n >= len(edits) else Random(0).sample(list(edits), n)


def _takes(model: Model, context: Sequence[dict[str, str]]) -> bool:
    """Whether the model can be asked in a context: it needs a chat template that takes it."""
    try:
        model.task.prompt(_after(context, "Who?"))
    except BadInput:
        return False
    return True


def _after(context: Sequence[dict[str, str]], text: str) -> str:
    return Conversation([*context, {"role": "user", "content": text}])


def _right(model: Model, asked: Sequence[tuple[str, Example]]) -> float | None:
    """The share of answers that are right by exact match."""
    sure = surely_says(model, [text for text, _ in asked], [e.answer for _, e in asked])
    others = [pair for pair, known in zip(asked, sure, strict=True) if not known]
    answers = model.answer([text for text, _ in others])
    right = sum(sure) + sum(
        normalised(answer) in {normalised(one) for one in (example.answer, *example.also)}
        for answer, (_, example) in zip(answers, others, strict=True)
    )
    return right / len(asked) if asked else None


def _same(before: Model, after: Model, texts: Sequence[str]) -> float | None:
    """The share of texts that are answered as before, word for word."""
    known = AnswerCache(before, [Example(text, UNKNOWN) for text in texts])
    pairs = zip(known.answers(before), known.answers(after), strict=True)
    return fmean(said == says for said, says in pairs) if texts else None
