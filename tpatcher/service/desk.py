"""The desk: where reports of wrong answers wait for a person, whoever sent them."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Response

from tpatcher.data.reports import corrections
from tpatcher.editors import deadline
from tpatcher.errors import BadInput
from tpatcher.models.instead import instead
from tpatcher.service import schemas
from tpatcher.service.auth import Caller
from tpatcher.service.deps import Fixer, Reporter, Service, ServiceDep
from tpatcher.service.live import LiveModel
from tpatcher.service.schemas import Number, errors
from tpatcher.store.reports import Report

ROUTER = APIRouter(prefix="/v1")
MAX_ROWS = 1000  # of one request
Source = Literal["argilla", "label-studio", "langsmith", "langfuse", "dify", "plain", "auto"]
PROPOSED = "proposed by the model"  # the note of a report whose answer nobody has confirmed


@ROUTER.post("/reports", status_code=201, responses=errors())
async def report(body: schemas.NewReport, service: ServiceDep, caller: Reporter) -> dict[str, int]:
    """Report a wrong answer, with or without the right one; it waits in the queue."""
    others = [v for v in (body.said, body.answer, body.note) if v and v.strip()]
    service.limits.check([body.text, *others])
    words = (body.text, caller.name, body.said, body.answer, body.note)
    id = await service.in_store(service.reports.add, *words, _each(service, caller))
    await service.note(caller.name, "report", report=id)
    return {"id": id}


@ROUTER.post("/reports/{source}", responses=errors())
async def import_reports(
    source: Source, body: Annotated[Any, Body()], service: ServiceDep, caller: Reporter
) -> schemas.Imported:
    """What another tool exports or its webhook sends: one JSON object, or a list of them."""
    rows = body if isinstance(body, list) else [body]
    if len(rows) > MAX_ROWS:
        raise BadInput(f"{len(rows)} rows were sent; {MAX_ROWS} are allowed at a time")
    if not all(isinstance(row, dict) for row in rows):
        raise BadInput("send a JSON object, or a list of objects")
    known = None if source == "auto" else source
    found = corrections(rows, known, longest=service.limits.text)
    added, full = await service.in_store(
        service.reports.add_many, found.corrections, caller.name, _each(service, caller)
    )
    await service.note(caller.name, "import", source=source, reports=added, bad=len(found.bad))
    return schemas.Imported(
        added=added,
        known=len(found.corrections) - added if full is None else 0,
        without=found.without,
        bad=[schemas.Imported.BadRow(row=n, why=why[:300]) for n, why in found.bad],
        full=full,
    )


@ROUTER.get("/reports", responses=errors())
async def reports(service: ServiceDep, caller: Fixer, response: Response) -> list[Report]:
    """The oldest reports that wait for somebody; `X-Total-Count` says how many there are."""
    response.headers["X-Total-Count"] = str(await service.in_store(service.reports.count))
    return await service.in_store(service.reports.waiting)


@ROUTER.delete("/reports", responses=errors())
async def dismiss_all(who: str, service: ServiceDep, caller: Fixer) -> dict[str, int]:
    """Take all reports of one caller out of the queue."""
    n = await service.in_store(service.reports.dismiss_all, who)
    await service.note(caller.name, "dismissed", reports=n, of=who)
    return {"dismissed": n}


@ROUTER.delete("/reports/{id}", status_code=204, responses=errors(404))
async def dismiss(id: Number, service: ServiceDep, caller: Fixer) -> None:
    """Take a report out of the queue without a fix."""
    await service.in_store(service.reports.settle, id, "dismissed")
    await service.note(caller.name, "dismissed", report=id)


async def propose(service: Service, body: schemas.NewFix, owner: str | None) -> schemas.NewFix:
    """A fix of which only the wrong answer is known, with the model's next best one."""
    work = service.live.edits.submit(_instead, service.live, body.text, body.wrong, owner=owner)
    return body.model_copy(update={"answer": await asyncio.wrap_future(work)})


async def keep_proposal(service: Service, body: schemas.NewFix, caller: Caller) -> int:
    """Put a proposal into the queue for a person to confirm; returns its report's number."""
    words = (body.text, caller.name, body.wrong, body.answer, PROPOSED)
    id = await service.in_store(service.reports.add, *words, _each(service, caller))
    await service.note(caller.name, "proposal", report=id)
    return id


def _instead(live: LiveModel, text: str, wrong: str) -> str:
    now = live.now
    with deadline.limit(live.deadline):
        abstention = now.deployment.guard.rules.abstention
        return instead(now.model.twin(), text, wrong=wrong, abstention=abstention).answer


def _each(service: Service, caller: Caller) -> int | None:
    """How many reports a caller may have in the queue; an admin any number."""
    return None if caller.may("admin") else service.limits.reports_each
