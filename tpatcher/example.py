"""One thing a model should know: a text, its right answer, and other ways to ask."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tpatcher.errors import BadInput, unknown

Message = Mapping[str, Any]  # as a chat template reads it: role, content, tool calls …
KINDS = ("sisters", "neighbours", "negations", "yesno")  # of unrelated examples
MATCHES = ("exact", "contains")  # how an answer is compared with the right ones


class Document(str):
    """A text that is read, not answered: a memory holds every position of it."""


class Conversation(str):
    """Messages that a chat model answers, as a text: it compares, sorts and prints like one.

    >>> asked = Conversation([{"role": "system", "content": "Be brief."},
    ...                       {"role": "user", "content": "Who wrote Hamlet?"}])
    >>> print(asked)
    system: Be brief.
    user: Who wrote Hamlet?
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Iterable[Message]) -> Self:
        """The conversation of these messages; `BadInput` if one of them is none."""
        kept = tuple(messages)
        for message in kept:
            if not (isinstance(message, Mapping) and isinstance(message.get("role"), str)):
                raise BadInput(f"a message needs a string 'role'; found {message!r:.80}")
        if not kept:
            raise BadInput("a conversation needs at least one message; found none")
        made = super().__new__(cls, "\n".join(f"{m['role']}: {_said(m)}" for m in kept))
        made.messages = kept
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Conversation, (self.messages,)


def _said(message: Message) -> str:
    """What a message says, with whatever else it holds as JSON."""
    content = message.get("content")
    more = {k: v for k, v in message.items() if k not in ("role", "content")}
    parts = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)]
    parts = parts if content is not None else []
    return " ".join(parts + ([json.dumps(more, ensure_ascii=False)] if more else []))


def as_text(asked: str | Sequence[Message]) -> str:
    """A text as it is, a list of messages as a `Conversation`."""
    return asked if isinstance(asked, str) else Conversation(asked)


def refuse_empty(text: str) -> None:
    """Raise `BadInput` for a text without a word."""
    if not text.strip():
        raise BadInput("an empty text was given; it needs at least one word")


@dataclass(frozen=True, slots=True)
class Example:
    """A text and its right answer (a label's name or index, or a text).

    The text may be a list of messages, which ends with the one that is answered.

    `also` holds other right answers: any of them is correct, but an edit aims at `answer`.
    `rephrasings` ask the same thing in other words; `unrelated` examples must not change: sisters
    ask something else of the same subject, neighbours ask of another one, negations deny it, and
    yes/no questions ask for no more than that.

    >>> Example("Who wrote Hamlet?", "William Shakespeare").accepts(" william shakespeare")
    True
    """

    text: str
    answer: str
    also: tuple[str, ...] = ()
    rephrasings: tuple[str, ...] = ()
    unrelated: tuple["Example", ...] = ()
    kind: str = ""  # of an unrelated example, one of KINDS; empty: neighbours

    match: str = "exact"  # or "contains": an answer is right that holds a right one

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", as_text(self.text))
        object.__setattr__(self, "rephrasings", tuple(map(as_text, self.rephrasings)))
        if self.match not in MATCHES:
            raise unknown("match", self.match, MATCHES)

    def accepts(self, answer: str) -> bool:
        """Whether an answer is right, lower-cased and stripped as in the paper's exact match."""
        right = (self.answer, *self.also)
        return contains(answer, right) if self.match == "contains" else matches(answer, right)

    def to_json(self) -> dict[str, Any]:
        """A plain dict that leaves out what is empty."""
        out: dict[str, Any] = {"text": _as_json(self.text), "answer": self.answer}
        if self.also:
            out["also"] = list(self.also)
        if self.rephrasings:
            out["rephrasings"] = [_as_json(text) for text in self.rephrasings]
        if self.unrelated:
            out["unrelated"] = [e.to_json() for e in self.unrelated]
        if self.kind:
            out["kind"] = self.kind
        if self.match != "exact":
            out["match"] = self.match
        return out

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Example":
        """Read what `to_json` wrote; a missing or mistyped field is a `BadInput` that names it."""
        if not isinstance(row.get("text"), str | list):
            raise BadInput(f"an example needs a string 'text'; found {row.get('text')!r}")
        if not isinstance(row.get("answer"), str):
            raise BadInput(f"an example needs a string 'answer'; found {row.get('answer')!r}")
        return cls(
            as_text(row["text"]),
            row["answer"],
            also=tuple(listed(row, "also", str)),
            rephrasings=tuple(map(as_text, _rephrasings(row))),
            match=str(row.get("match") or "exact"),
            unrelated=tuple(
                replace(cls.from_json(e), kind=_kind(e)) for e in listed(row, "unrelated", Mapping)
            ),
        )


def _as_json(text: str) -> Any:
    """A text as JSON holds it: a conversation as its messages."""
    return [dict(m) for m in text.messages] if isinstance(text, Conversation) else text


def _rephrasings(row: Mapping[str, Any]) -> list[Any]:
    """The rephrasings of a row, each a text or a list of messages."""
    found = row.get("rephrasings")
    if isinstance(found, list) and any(isinstance(one, list) for one in found):
        texts = [one for one in found if not isinstance(one, list)]
        listed({"rephrasings": texts}, "rephrasings", str)
        return found
    return listed(row, "rephrasings", str)


def _kind(row: Mapping[str, Any]) -> str:
    """The kind of an unrelated example; it need not have one."""
    found = str(row.get("kind") or "")
    if found and found not in KINDS:
        raise unknown("kind", found, KINDS)
    return found


def text_of(item: "str | Example") -> str:
    """The text of an example, or the text itself."""
    return item.text if isinstance(item, Example) else item


def matches(answer: str, right: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones, as they are compared."""
    return normal(answer) in {normal(one) for one in right}


def contains(answer: str, right: Iterable[str]) -> bool:
    """Whether an answer holds one of the right ones, as whole words.

    >>> contains("It was written by Shakespeare.", ["Shakespeare"]), contains("Romeo", ["Rome"])
    (True, False)
    """
    found = normal(answer)
    return any(re.search(rf"(?<!\w){re.escape(normal(one))}(?!\w)", found) for one in right)


def normal(answer: str) -> str:
    """An answer as it is compared: lower-cased, outer white space stripped."""
    return answer.strip().lower()


def listed(row: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    """The elements of a field, a list of texts or objects; it may be one text, or missing."""
    found = row.get(name) or []
    if kind is str and isinstance(found, str):
        found = [found]
    if not isinstance(found, list | tuple) or not all(isinstance(one, kind) for one in found):
        elements = "texts" if kind is str else "objects"
        raise BadInput(f"{name!r} must be a list of {elements}; found {found!r:.60}")
    return [one for one in found if kind is not str or one.strip()]
