"""What goes in and out over HTTP."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from tpatcher.example import Example
from tpatcher.service.live import Made
from tpatcher.store.store import Fix

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Text = Annotated[str, Field(min_length=1, examples=["Who wrote Hamlet?"])]


class Body(BaseModel):
    """A request; a field that is not known is a mistake, not something to pass over."""

    model_config = ConfigDict(extra="forbid")


class Ask(Body):
    """One text, or several."""

    text: Text | None = None
    texts: list[Text] = Field(default_factory=list)


class Answered(BaseModel):
    """An answer, and the numbers of the fixes that fired for it."""

    text: str
    answer: str
    fixes: list[int]


class Answers(BaseModel):
    """Answers in the order of the texts."""

    answers: list[Answered]


class NewReport(Body):
    """This answer is wrong; the right one may be left to others."""

    text: Text
    said: str | None = None
    answer: str | None = None
    note: str | None = None


class NewFix(Body):
    """A text, its right answer, and other ways to ask it."""

    text: Text
    answer: Annotated[str, Field(min_length=1)]
    also: list[str] = Field(default_factory=list)
    rephrasings: list[Text] = Field(default_factory=list)
    dry_run: bool = False
    supersede: bool = False  # change what an earlier fix of the same text says
    report: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None  # settles this report

    def example(self) -> Example:
        return Example(self.text, self.answer, tuple(self.also), tuple(self.rephrasings))


class FixMade(BaseModel):
    """A fix that is live (or, with `dry_run`, would be) and what it does to everything else."""

    id: int | None
    would_refuse: list[str]
    certificate: dict[str, Any]
    guard: dict[str, Any]

    @classmethod
    def of(cls, made: Made) -> "FixMade":
        guard = made.verdict.to_json()
        reasons = guard.pop("reasons")
        return cls(id=made.id, would_refuse=reasons, certificate=made.certificate, guard=guard)


class OneFix(BaseModel):
    """A fix as it is kept."""

    id: int
    live: bool
    text: str | None
    answer: str | None
    rephrasings: list[str]
    editor: str
    settings: dict[str, Any]
    report: dict[str, Any]
    who: str
    at: str

    @classmethod
    def of(cls, fix: Fix, live: bool) -> "OneFix":
        example = fix.example
        return cls(
            id=fix.id, live=live, text=example.text if example else None,
            answer=example.answer if example else None,
            rephrasings=list(example.rephrasings) if example else [],
            editor=fix.editor, settings=fix.settings, report=fix.report, who=fix.who, at=fix.at,
        )  # fmt: skip


class Fixes(BaseModel):
    """The fixes, newest first, and the number of the store's newest entry."""

    head: int
    live: int
    fixes: list[OneFix]


class Undone(BaseModel):
    """A fix is off; these newer ones leaned on it and no longer hold."""

    id: int
    no_longer_hold: list[int]


class Rollback(Body):
    """Back to how things were after this entry (the number of a fix, say); 0: no fixes at all."""

    to: Annotated[int, Field(ge=0, le=2**31 - 1)]


class RolledBack(BaseModel):
    """The new head, and what is live now."""

    head: int
    fixes: list[int]


class Failed(BaseModel):
    """An error; `verdict` has what the guard found, if it was the guard."""

    class Error(BaseModel):
        type: str
        message: str
        verdict: dict[str, Any] | None = None

    error: Error


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route documents; those that every route can have are always there."""
    return {s: {"model": Failed} for s in (401, 403, 413, 422, 429, 503, *statuses)}
