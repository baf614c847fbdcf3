"""What every editor is: fitted once to a model, then one pure `edit` per mistake."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from inspect import signature
from typing import Any, ClassVar, Self, TypeVar

from tpatcher.errors import AlreadyRight, Conflict, TPatcherError, unknown
from tpatcher.example import Example, normal
from tpatcher.models.model import Model
from tpatcher.patches.base import Patch

Made = TypeVar("Made")


@dataclass
class Editor(ABC):
    """A method that makes patches; its knobs are dataclass fields.

    A field with `repr=False` is no knob: it holds what `fit` learned, or where that is kept.
    `edit` never changes the model, and the editor keeps no state per edit.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when the same knobs make other patches: old results go

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """Learn from ordinary examples what the method needs, once per base model.

        A method that learns from mistakes alone has nothing to do here.
        """
        return self

    @abstractmethod
    def solve(self, model: Model, example: Example) -> Patch:
        """Make the patch for an example that `edit` has checked."""

    def edit(self, model: Model, example: Example, *, supersede: bool = False) -> Patch:
        """Return a patch that makes the model answer this example rightly.

        An edit is two checks and then `solve`. Raises `Conflict` if the same text was fixed to
        another answer before, unless `supersede` is set; `AlreadyRight` if the model's answer is
        right; `NotFixed` if there is no such patch.
        """
        if not supersede:
            _check_conflict(model, example)
        self.check_mistake(model, example)
        return self.solve(model, example)

    def edit_all(
        self, model: Model, examples: Sequence[Example], *, supersede: bool = False
    ) -> Iterator[Patch | TPatcherError]:
        """Edit many examples, each on top of those before; what `edit` raises stands in its place.

        The model itself stays as it is: push what is wanted of the patches, in their order.
        """
        trial = model.twin()
        for example in examples:
            try:
                patch = self.edit(trial, example, supersede=supersede)
                if patch.certificate.fixed is not False:  # nobody will keep it
                    trial.push(patch)
            except TPatcherError as error:
                yield error
            else:
                yield patch

    def remember(self, model: Model, texts: Sequence[str]) -> Self:
        """This editor, or one that leaves alone what the model now says to these texts too.

        A method that keeps nothing of what it is fitted on has nothing to do here.
        """
        return self

    def check_mistake(self, model: Model, example: Example) -> None:
        """Run the model and raise `AlreadyRight` if it gives one of the right answers.

        An editor whose `solve` raises `AlreadyRight` itself may skip this run.
        """
        if model.correct([example])[0]:
            raise AlreadyRight(f"the model answers {example.text!r} with {example.answer!r}")

    def knobs(self) -> dict[str, Any]:
        """The fields that describe the method, as JSON can hold them."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.repr}
        nested = {k: asdict(v) for k, v in values.items() if is_dataclass(v)}  # type: ignore[arg-type]
        return {**values, **nested}

    def versions(self) -> list[int]:
        """The version of each part of the method that has one of its own."""
        return [self.version]

    def fit_key(self) -> dict[str, Any] | None:
        """What decides, beside the model and the examples, what `fit` learns, as JSON can hold it.

        None means that fitting costs nothing, so nothing need be kept for other editors.
        """
        return None


def with_fields(kind: Callable[..., Made], name: str, values: Mapping[str, Any]) -> Made:
    """An editor or a solver with these fields; `BadInput` for a field that it does not have."""
    known = signature(kind).parameters
    for field in values:
        if field not in known:
            raise unknown(f"field of {name}", field, known)
    return kind(**values)


def _check_conflict(model: Model, example: Example) -> None:
    """Raise `Conflict` if the newest fix of this text has another answer."""
    text = example.text.strip()
    fixes = [p for p in model.patches if p.example and p.example.text.strip() == text]
    past = fixes[-1].example if fixes else None
    if past and normal(past.answer) != normal(example.answer):
        raise Conflict(
            f"{example.text!r} was fixed to {past.answer!r} by {fixes[-1].id}; to change it to "
            f"{example.answer!r}, remove that patch or supersede it"
        )
