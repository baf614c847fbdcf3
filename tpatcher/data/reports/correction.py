"""A correction, and how its parts are found under the names that people give to fields."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpatcher.errors import BadInput
from tpatcher.example import normal

TEXT = (
    "text", "question", "prompt", "instruction", "input", "query", "claim", "sentence", "src",
    "content", "message", "user", "chat", "messages",
)  # fmt: skip
ANSWER = (
    "answer", "correction", "corrected", "corrected_response", "corrected_answer", "correct_answer",
    "expected", "expected_output", "label", "labels", "sentiment", "category", "response", "output",
    "completion", "target", "reference",
)  # fmt: skip
SAID = (
    "said", "wrong", "prediction", "predicted", "model_answer", "model_output", "generation",
    "output", "response", "completion", "generated",
)  # fmt: skip
WORDS = ("content", "text", "value", "output", "answer", "response", "result", "generated_text")


@dataclass(frozen=True)
class Correction:
    """A text, what the model said, and what it should have said, as far as somebody said so."""

    text: str
    answer: str | None = None
    said: str | None = None
    note: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether what the model said is what it should say, so that there is no mistake."""
        return self.answer is not None and normal(self.answer) == normal(self.said or "")

    def check_length(self, longest: int | None) -> None:
        """Raise `BadInput` if one of the texts has more characters than may be."""
        most = max(len(part or "") for part in (self.text, self.answer, self.said, self.note))
        if longest is not None and most > longest:
            raise BadInput(f"a text has {most} characters; {longest} are allowed")


@dataclass(frozen=True)
class Names:
    """The fields that hold text and answer, where they are called like nothing that is known."""

    text: str | None = None
    answer: str | None = None
    said: str | None = None

    def pick_text(self, fields: Mapping[str, Any]) -> str:
        """The text among some fields."""
        return _needed(fields, self.text, TEXT, "text", asked=True)

    def pick_answer(self, fields: Mapping[str, Any]) -> str | None:
        """The right answer among some fields; None if there is none."""
        return _found(fields, self.answer, ANSWER)

    def pick_said(self, fields: Mapping[str, Any]) -> str | None:
        """What the model said, among some fields; None if that is not known."""
        return _found(fields, self.said, SAID)


def kept(made: Iterable[Correction]) -> list[Correction]:
    """Corrections without those in which all agree."""
    return [one for one in made if not one.agrees]


def words(value: Any, asked: bool = False, depth: int = 12) -> str | None:
    """The text in a value: itself, one of its fields, or of messages the last that was asked.

    Nobody hides a text deeper than `depth`, and Python's own stack has an end.

    >>> words({"messages": [{"role": "user", "content": "Why?"}]}, asked=True)
    'Why?'
    """
    if isinstance(value, bool) or value is None or not depth:
        return None
    if isinstance(value, str | int | float):
        return str(value).strip() or None
    if isinstance(value, list):
        if asked:
            value = [m for m in value if not isinstance(m, dict) or _role(m) in (None, "user")]
        told = [one for one in (words(part, asked, depth - 1) for part in value) if one]
        return told[-1] if told else None
    if isinstance(value, Mapping):
        names = (*TEXT, *WORDS) if asked else (*WORDS, *ANSWER, "choices", "message", "generations")
        inner = (words(value.get(name), asked, depth - 1) for name in names)
        return next((w for w in inner if w), None)
    return None


def _role(message: Mapping[str, Any]) -> str | None:
    found = message.get("role", message.get("type"))
    return {"human": "user"}.get(str(found), str(found)) if found is not None else None


def _found(fields: Mapping[str, Any], wanted: str | None, names: Iterable[str]) -> str | None:
    if wanted is not None:
        return words(fields.get(wanted))
    lower = {str(name).lower(): value for name, value in fields.items()}
    return next((w for name in names if (w := words(lower.get(name)))), None)


def _needed(
    fields: Mapping[str, Any], wanted: str | None, names: Iterable[str], what: str, asked: bool
) -> str:
    lower = {str(name).lower(): value for name, value in fields.items()}
    order = [wanted.lower()] if wanted else [name for name in names if name in lower]
    if not order and len(fields) == 1:
        order = list(lower)
    found = next((w for name in order if (w := words(lower.get(name), asked))), None)
    if found is None:
        has = ", ".join(map(str, fields)) or "nothing"
        raise BadInput(f"no {what} is in {wanted or 'any field that is known'}; there is: {has}")
    return found
