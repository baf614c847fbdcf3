"""The bodies of requests and responses."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from tpatcher.errors import BadInput
from tpatcher.example import Conversation, Example
from tpatcher.service.limits import Limits
from tpatcher.service.live import FixResult
from tpatcher.store.store import Fix

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Text = Annotated[str, Field(min_length=1, examples=["Who wrote Hamlet?"])]
# Every list has a length, which is looked at before what is in it: each wrong item of a list is
# an error of its own, and half a million errors would keep everybody waiting for seconds.
MAX_ITEMS = Limits.batch
MAX_REPHRASINGS = 16  # the work of an edit grows with them
MAX_FIELDS = 64
OTHERS_TEXTS = ("nearest", "flipped", "reasons")  # what names texts of the memory and canaries


class Body(BaseModel):
    """A request; unknown fields are errors and not ignored."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _count_fields(cls, sent: Any) -> Any:
        """Refuse more fields than any request has, because each unknown one is an error."""
        if isinstance(sent, dict) and len(sent) > MAX_FIELDS:
            raise ValueError(f"{len(sent)} fields were sent; {MAX_FIELDS} are allowed")
        return sent


class AnswerRequest(Body):
    """One text, or several."""

    text: Text | None = None
    texts: list[Text] = Field(default_factory=list, max_length=MAX_ITEMS)


class Answer(BaseModel):
    """An answer, and the numbers of the fixes that fired for it."""

    text: str
    answer: str
    fixes: list[int]


class AnswerResponse(BaseModel):
    """Answers in the order of the texts."""

    answers: list[Answer]


class NewReport(Body):
    """A wrong answer, with or without the right one."""

    text: Text
    said: str | None = None
    answer: str | None = None
    note: str | None = None


class Imported(BaseModel):
    """What became of the rows of another tool: each that makes no sense is named."""

    class BadRow(BaseModel):
        row: int
        why: str

    added: int  # reports that wait now
    known: int  # that waited already
    without: int  # rows that correct nothing
    bad: list[BadRow]
    full: str | None = None  # why some were left out


class NewFix(Body):
    """A text or a conversation, its right answer or a wrong one, and other ways to ask it."""

    text: Text = ""
    messages: list[dict[str, Any]] = Field(default_factory=list, max_length=MAX_ITEMS)
    answer: Annotated[str, Field(min_length=1)] | None = None
    wrong: Annotated[str, Field(min_length=1)] | None = None  # only this is known
    confirmed: StrictBool = False  # what is proposed instead of `wrong` goes live at once
    also: list[str] = Field(default_factory=list, max_length=MAX_ITEMS)
    rephrasings: list[Text] = Field(default_factory=list, max_length=MAX_REPHRASINGS)
    dry_run: StrictBool = False
    supersede: StrictBool = False  # change what an earlier fix of the same text says
    report: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = None  # settles this report

    @model_validator(mode="after")
    def _one_of_both(self) -> "NewFix":
        """Take messages as the text that they are."""
        if bool(self.text) == bool(self.messages):
            raise ValueError("give either text or messages")
        if self.messages:
            try:
                self.text = Conversation(self.messages)
            except BadInput as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def waits(self) -> bool:
        """Whether a person has to confirm what the model proposes."""
        return self.wrong is not None and not self.confirmed and not self.dry_run

    def example(self) -> Example:
        """The mistake to fix."""
        return Example(self.text, self.answer or "", tuple(self.also), tuple(self.rephrasings))


class FixResponse(BaseModel):
    """A fix that is live (or would be: `dry_run`), and what it does to everything else."""

    id: int | None
    live: bool  # no: a dry run, or this Idempotency-Key made it before and it was undone
    answer: str  # that is given from now on; the model's proposal if only a wrong one was known
    report: int | None = None  # where a proposal waits for a person to confirm it
    would_refuse: list[str]
    certificate: dict[str, Any]
    guard: dict[str, Any]

    @classmethod
    def of(cls, result: FixResult, live: bool, answer: str) -> "FixResponse":
        guard = result.verdict.to_json()
        reasons = guard.pop("reasons")
        return cls(
            id=result.id,
            live=live,
            answer=answer,
            would_refuse=reasons,
            certificate=result.certificate,
            guard=guard,
        )


class FixDetails(BaseModel):
    """A fix as it is stored."""

    id: int
    live: bool
    text: str | None
    answer: str | None
    rephrasings: list[str]
    editor: str
    settings: dict[str, Any]
    checks: dict[str, Any]
    who: str
    at: str

    @classmethod
    def of(cls, fix: Fix, live: bool, with_texts: bool) -> "FixDetails":
        """A fix; without `with_texts`, no words of others that the guard found are in it."""
        example, checks = fix.example, fix.checks
        if not with_texts and isinstance(guard := checks.get("guard"), dict):
            checks = {**checks, "guard": {k: v for k, v in guard.items() if k not in OTHERS_TEXTS}}
        return cls(
            id=fix.id,
            live=live,
            text=example.text if example else None,
            answer=example.answer if example else None,
            rephrasings=list(example.rephrasings) if example else [],
            editor=fix.editor,
            settings=fix.settings,
            checks=checks,
            who=fix.who,
            at=fix.at,
        )


class DamagedFix(BaseModel):
    """A fix that should be live and cannot be read; undo it, or roll back to before it."""

    id: int
    why: str


class FixList(BaseModel):
    """Some fixes, newest first, and the number of the store's newest entry."""

    head: int
    live: int
    total: int  # fixes that ever were
    next: int | None  # `before` of the next page
    damaged: list[DamagedFix]
    fixes: list[FixDetails]


class UndoResponse(BaseModel):
    """The fix that was undone, and newer ones that depended on it and no longer hold."""

    id: int
    no_longer_hold: list[int]


class RollbackRequest(Body):
    """The entry to go back to, such as the number of a fix; 0: before any fix."""

    to: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]


class RollbackResponse(BaseModel):
    """The number of the rollback's own entry, and the fixes that are live now."""

    head: int
    fixes: list[int]


class ErrorResponse(BaseModel):
    """An error: its type, a message, and the guard's verdict if the guard refused."""

    class Error(BaseModel):
        type: str
        message: str
        verdict: dict[str, Any] | None = None

    error: Error


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors to document for a route: these, and those that every route can have."""
    return {s: {"model": ErrorResponse} for s in (401, 403, 413, 422, 429, 503, *statuses)}
