"""One thing a model should know: a text, its right answer, and other ways to ask."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tpatcher.errors import BadInput, unknown

KINDS = ("sisters", "neighbours", "negations", "yesno")  # of unrelated examples


@dataclass(frozen=True, slots=True)
class Example:
    """A text and its right answer (a label's name or index, or a text).

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

    def accepts(self, answer: str) -> bool:
        """Whether an answer is right, lower-cased and stripped as in the paper's exact match."""
        return matches(answer, (self.answer, *self.also))

    def to_json(self) -> dict[str, Any]:
        """A plain dict that leaves out what is empty."""
        out: dict[str, Any] = {"text": self.text, "answer": self.answer}
        for name in ("also", "rephrasings"):
            if getattr(self, name):
                out[name] = list(getattr(self, name))
        if self.unrelated:
            out["unrelated"] = [e.to_json() for e in self.unrelated]
        if self.kind:
            out["kind"] = self.kind
        return out

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Example":
        """Read what `to_json` wrote; a missing or mistyped field is a `BadInput` that names it."""
        for name in ("text", "answer"):
            if not isinstance(row.get(name), str):
                raise BadInput(f"an example needs a string {name!r}; found {row.get(name)!r}")
        return cls(
            row["text"],
            row["answer"],
            also=tuple(listed(row, "also", str)),
            rephrasings=tuple(listed(row, "rephrasings", str)),
            unrelated=tuple(
                replace(cls.from_json(e), kind=_kind(e)) for e in listed(row, "unrelated", Mapping)
            ),
        )


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
