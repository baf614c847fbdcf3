"""What every editor is: fitted once to a model, then one pure `edit` per mistake."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from tpatcher.errors import AlreadyRight, BadInput, Conflict
from tpatcher.example import Example, normal
from tpatcher.models.model import Model
from tpatcher.patches.base import Patch


@dataclass
class Editor(ABC):
    """Knobs are fields; `edit` never changes the model, and the editor keeps no state per edit."""

    name: ClassVar[str]

    @abstractmethod
    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """Learn from ordinary traffic what the method needs, once per base model."""

    @abstractmethod
    def solve(self, model: Model, example: Example) -> Patch:
        """A patch for a mistake that was checked to be one."""

    def edit(self, model: Model, example: Example, *, supersede: bool = False) -> Patch:
        """A patch that makes the model answer this example rightly; the model is untouched.

        `AlreadyRight` if it does; `Conflict` if the same text was fixed to another answer
        before, unless that is to be superseded; `NotFixed` if there is no such patch.
        """
        if not example.text.strip():
            raise BadInput("an empty text was given; a question needs at least one word")
        if not supersede:
            for past in fixed(model, example.text):
                assert past.example is not None
                if normal(past.example.answer) != normal(example.answer):
                    raise Conflict(
                        f"{example.text!r} was fixed to {past.example.answer!r} by {past.id}; "
                        f"to change it to {example.answer!r}, remove that patch or supersede it"
                    )
        if self.right(model, example):
            raise AlreadyRight(f"the model answers {example.text!r} with {example.answer!r}")
        return self.solve(model, example)

    def right(self, model: Model, example: Example) -> bool:
        """Whether the model gives one of the right answers, by running it."""
        return model.correct([example])[0]


def fixed(model: Model, text: str) -> list[Patch]:
    """The live patches for this very text; the newest is the one that speaks."""
    found = [p for p in model.patches if p.example and p.example.text.strip() == text.strip()]
    return found[-1:]
