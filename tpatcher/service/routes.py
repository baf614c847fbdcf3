"""The routes of the service's own API; each is a few lines over the desk."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from tpatcher.errors import BadInput, NotFound, Refused, TPatcherError
from tpatcher.service import schemas as shapes
from tpatcher.service.deps import Admin, Answerer, Fixer, Reporter, Service, State
from tpatcher.service.pictures import heat
from tpatcher.service.schemas import Number, errors
from tpatcher.store.reports import Report

API = APIRouter(prefix="/v1")


@API.post("/answer", responses=errors())
async def answer(body: shapes.Ask, service: Service, caller: Answerer) -> shapes.Answers:
    """Answers, and for each which fixes fired."""
    if (body.text is None) == (not body.texts):
        raise BadInput("give either `text` or `texts`")
    texts = body.texts if body.text is None else [body.text]
    service.limits.check(texts)
    waiting = [service.batcher.submit(service.prompt(t)) for t in texts]
    found = await asyncio.gather(*map(asyncio.wrap_future, waiting))
    answers = []
    for text, (said, fired) in zip(texts, found, strict=True):
        service.heard(text, said, fired)
        answers.append(shapes.Answered(text=text, answer=said.text, fixes=sorted(fired)))
    return shapes.Answers(answers=answers)


@API.post("/reports", status_code=201, responses=errors())
def report(body: shapes.NewReport, service: Service, caller: Reporter) -> dict[str, int]:
    """This answer is wrong: into the queue, with or without the right one."""
    others = [v for v in (body.said, body.answer, body.note) if v and v.strip()]
    service.limits.check([body.text, *others])
    id = service.reports.add(body.text, caller.name, body.said, body.answer, body.note)
    service.audit.note(caller.name, "report", report=id)
    return {"id": id}


@API.get("/reports", responses=errors())
def reports(service: Service, caller: Fixer) -> list[Report]:
    """The reports that wait for somebody to settle them, oldest first."""
    return service.reports.waiting()


@API.delete("/reports/{id}", status_code=204, responses=errors(404))
def dismiss(id: Number, service: Service, caller: Fixer) -> None:
    """Take a report out of the queue without a fix."""
    service.reports.settle(id, "dismissed")
    service.audit.note(caller.name, "dismissed", report=id)


@API.post("/fixes", status_code=201, responses={**errors(409), 200: {"model": shapes.FixMade}})
async def fix(
    body: shapes.NewFix,
    service: Service,
    caller: Fixer,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> shapes.FixMade:
    """Edit a twin, ask the guard, keep the patch, swap. 201: it is live; 200: a dry run, or
    this Idempotency-Key had made it before."""
    service.limits.check([body.text, body.answer, *body.also, *body.rephrasings])
    for text in (body.text, *body.rephrasings):
        service.prompt(text)
    try:
        made = await asyncio.wrap_future(
            service.desk.write(
                service.desk.fix, body.example(), who=caller.name, key=idempotency_key,
                dry_run=body.dry_run, supersede=body.supersede,
            )
        )  # fmt: skip
    except TPatcherError as error:
        service.metrics.edits.labels(type(error).__name__).inc()
        if isinstance(error, Refused):
            service.metrics.refusals.inc()
        await asyncio.to_thread(
            service.audit.note, caller.name, "refused", text=body.text, answer=body.answer,
            why=type(error).__name__,
        )  # fmt: skip
        raise
    if made.id is None or made.repeated:
        response.status_code = 200
        return shapes.FixMade.of(made)
    service.metrics.edits.labels("live").inc()
    if made.verdict.reasons:
        service.metrics.refusals.inc()
    await asyncio.to_thread(_settle, service, caller.name, made.id, body.report)
    return shapes.FixMade.of(made)


def _settle(service: State, who: str, fix: int, report: int | None) -> None:
    service.audit.note(who, "fix", fix=fix, report=report)
    if report is not None:
        try:
            service.reports.settle(report, f"fixed by {fix}")
        except NotFound:  # somebody dismissed it meanwhile; the fix is live all the same
            service.audit.note(who, "no such report", report=report)


@API.get("/fixes", responses=errors())
def fixes(
    service: Service, caller: Reporter, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> shapes.Fixes:
    """The newest fixes, newest first, live or not."""
    now, store = service.desk.now, service.desk.store
    numbers = [e.id for e in store.log() if e.action == "append"][-limit:]
    found = [shapes.OneFix.of(f, f.id in now.ids) for f in store.fixes(numbers)]
    return shapes.Fixes(head=now.head, live=len(now.ids), fixes=found[::-1])


@API.get("/fixes/{id}", responses=errors(404))
def inspect(id: Number, service: Service, caller: Reporter) -> shapes.OneFix:
    """One fix, with its certificate and what the guard found."""
    return shapes.OneFix.of(service.desk.store.fix(id), id in service.desk.now.ids)


@API.delete("/fixes/{id}", responses=errors(404, 409))
async def undo(id: Number, service: Service, caller: Fixer) -> shapes.Undone:
    """Take one fix off, exactly."""
    lost = await asyncio.wrap_future(service.desk.write(service.desk.undo, id, who=caller.name))
    await asyncio.to_thread(service.audit.note, caller.name, "undo", fix=id, lost=lost)
    return shapes.Undone(id=id, no_longer_hold=lost)


@API.post("/rollback", responses=errors(404))
async def rollback(body: shapes.Rollback, service: Service, caller: Admin) -> shapes.RolledBack:
    """Back to what was live after an entry of the log; this is undone by rolling back again."""
    work = service.desk.write(service.desk.rollback, body.to, who=caller.name)
    now = await asyncio.wrap_future(work)
    await asyncio.to_thread(service.audit.note, caller.name, "rollback", to=body.to, head=now.head)
    return shapes.RolledBack(head=now.head, fixes=list(now.ids))


@API.get("/model", responses=errors())
def model(service: Service, caller: Answerer) -> dict[str, Any]:
    """Which model this is, and what it can say."""
    base, now = service.desk.base, service.desk.now
    return {
        "name": base.name,
        "fingerprint": base.base.fingerprint,
        "task": base.task.name,
        "labels": getattr(base.task, "labels", None),
        "head": now.head,
        "fixes": len(now.ids),
        "role": caller.role,
        "shadow": service.desk.now.ground.guard.rules.shadow,
    }


@API.get("/activity", responses=errors())
def activity(service: Service, caller: Fixer) -> dict[str, Any]:
    """For the pictures: what happened when, and how fixes respond to recent questions."""
    events = [
        {k: e.get(k) for k in ("at", "who", "what", "fix", "to", "why")}
        for e in service.audit.latest()
        if e["what"] in ("fix", "refused", "undo", "rollback")
    ]
    return {"events": events, **heat(service.desk.now), "now": time.time()}
