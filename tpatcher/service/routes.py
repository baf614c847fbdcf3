"""The routes of the service's own API; each is a few lines over the live model."""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from tpatcher.data.reports.export import EXPORTS
from tpatcher.errors import BadInput, Busy, Denied, Refused, TPatcherError
from tpatcher.patches.neurons import Neurons
from tpatcher.service import desk, schemas
from tpatcher.service.auth import Caller
from tpatcher.service.deps import Admin, Answerer, Fixer, Reporter, Service, ServiceDep
from tpatcher.service.guard import HIDDEN
from tpatcher.service.live import Snapshot
from tpatcher.service.schemas import Number, errors
from tpatcher.store.listing import page
from tpatcher.store.tables import timestamp

ROUTER = APIRouter(prefix="/v1")


@ROUTER.post("/answer", responses=errors())
async def answer(
    body: schemas.AnswerRequest, service: ServiceDep, caller: Answerer
) -> schemas.AnswerResponse:
    """Answers, and for each which fixes fired."""
    if (body.text is None) == (not body.texts):
        raise BadInput("give either `text` or `texts`")
    texts = body.texts if body.text is None else [body.text]
    service.limits.check(texts)
    prompts = [service.prompt(text) for text in texts]
    service.check_length(prompts)
    waiting = [asyncio.wrap_future(one) for one in service.batcher.submit_all(prompts)]
    answers = []
    for text, (reply, fired) in zip(texts, await asyncio.gather(*waiting), strict=True):
        service.remember(text, reply, fired)
        answers.append(schemas.Answer(text=text, answer=reply.text, fixes=sorted(fired)))
    return schemas.AnswerResponse(answers=answers)


@ROUTER.post(
    "/fixes", status_code=201, responses={**errors(409), 200: {"model": schemas.FixResponse}}
)
async def fix(
    body: schemas.NewFix,
    service: ServiceDep,
    caller: Fixer,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> schemas.FixResponse:
    """Fix a mistake. 201: it is live; 200: a dry run, or this Idempotency-Key made it before.

    202: only the wrong answer was given, so another one waits at the desk for a person to confirm.
    """
    if (body.answer is None) == (body.wrong is None):
        raise BadInput("give either `answer`, the right one, or `wrong`, the wrong one")
    told = [*body.also, *body.rephrasings, body.answer or body.wrong or ""]
    service.limits.check([body.text, *told])
    service.check_length([service.prompt(text) for text in (body.text, *body.rephrasings)])
    admin = caller.may("admin")
    owner = None if admin else caller.name
    if body.wrong is not None:
        body = await desk.propose(service, body, owner)
    if not admin and not body.dry_run:
        await _check_quota(service, caller)
    if body.supersede:
        await _check_own(service, caller, _fixes_of(service.live.now, body.text))
    try:
        work = service.live.edits.submit(
            service.live.fix,
            body.example(),
            who=caller.name,
            key=idempotency_key,
            dry_run=body.dry_run or body.waits,
            supersede=body.supersede,
            by_admin=admin,
            owner=owner,
        )
        result = await asyncio.wrap_future(work)
    except TPatcherError as error:
        kind = type(error).__name__
        service.metrics.edits.labels(kind).inc()
        if isinstance(error, Refused):
            service.metrics.refusals.inc()
        if not isinstance(error, Busy):  # or too much work would make more of it
            await service.note(caller.name, "refused", **_words(service, body), why=kind)
        raise
    made = schemas.FixResponse.of(result, result.id in service.live.now.ids, body.answer or "")
    if result.id is None:
        await service.note(caller.name, "dry run", **_words(service, body))
    if body.waits:
        response.status_code = 202
        return made.model_copy(update={"report": await desk.keep_proposal(service, body, caller)})
    if result.id is None or result.repeated:
        response.status_code = 200
        return made
    service.metrics.edits.labels("live").inc()
    if result.verdict.reasons:
        service.metrics.refusals.inc()
    await service.note(caller.name, "fix", fix=result.id, report=body.report)
    if body.report is not None:
        try:
            await service.in_store(service.reports.settle, body.report, f"fixed by {result.id}")
        except TPatcherError as error:  # dismissed meanwhile, or the store hangs: the fix is live
            why = type(error).__name__
            await service.note(caller.name, "report not settled", report=body.report, why=why)
    return made.model_copy(update={"live": True})


async def _check_quota(service: Service, caller: Caller) -> None:
    """Raise `Busy` if a caller has made as many fixes in the last 24 hours as they may."""
    limit, store = service.limits.fixes_a_day, service.live.store
    if await service.in_store(store.made_since, caller.name, timestamp(hours_ago=24)) >= limit:
        raise Busy(f"{caller.name!r} has made {limit} fixes in the last 24 hours", after=3600)


async def _check_own(service: Service, caller: Caller, ids: list[int]) -> None:
    """Raise `Denied` if a caller may change only their own fixes and one of these is another's."""
    if caller.may("admin") or not service.live.now.deployment.guard.rules.own_fixes_only:
        return
    for fix in await service.in_store(service.live.store.fixes, ids):
        if fix.who != caller.name:
            raise Denied(f"fix {fix.id} is not {caller.name}'s; this needs admin", known=True)


def _fixes_of(now: Snapshot, text: str) -> list[int]:
    """The numbers of the live fixes of a text."""
    found = now.patches.items()
    return [i for i, p in found if p.example and p.example.text.strip() == text.strip()]


def _words(service: Service, body: schemas.NewFix) -> dict[str, str]:
    """What the audit log keeps of a fix that is not in the store."""
    if service.private:
        return {}
    return {"text": body.text[:200], "answer": (body.answer or "")[:200]}


@ROUTER.get("/fixes", responses=errors())
async def fixes(
    service: ServiceDep,
    caller: Reporter,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    search: Annotated[str, Query(max_length=200)] = "",
    live: bool = False,
) -> schemas.FixList:
    """A page of fixes, newest first, live or not; and those that are damaged and left out.

    `next` of one page is `before` of the next.
    """
    now = service.live.now
    found = await service.in_store(
        page,
        now.deployment.store,
        limit,
        before=before,
        search=search,
        among=frozenset(now.ids) if live else None,
    )
    ids = frozenset(now.ids)
    return schemas.FixList(
        head=now.head,
        live=len(ids),
        total=found.total,
        next=found.next,
        damaged=[schemas.DamagedFix(id=i, why=why) for i, why in now.damaged.items()],
        fixes=[schemas.FixDetails.of(f, f.id in ids, caller.may("fix")) for f in found.fixes],
    )


@ROUTER.get("/export", responses=errors())
async def export(
    service: ServiceDep, caller: Reporter, format: Literal["jsonl", "dify"] = "jsonl"
) -> Response:
    """The live fixes as a file: for `tpatcher fix --file`, or for Dify's annotations."""
    examples = [p.example for p in service.live.now.model.patches if p.example]
    kind, name = (
        ("text/csv", "dify.csv") if format == "dify" else ("application/jsonl", "fixes.jsonl")
    )
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(EXPORTS[format](examples), media_type=kind, headers=headers)


@ROUTER.get("/fixes/{id}", responses=errors(404))
async def inspect(id: Number, service: ServiceDep, caller: Reporter) -> schemas.FixDetails:
    """One fix, with its certificate and what the guard found."""
    found = await service.in_store(service.live.store.fix, id)
    return schemas.FixDetails.of(found, id in service.live.now.ids, caller.may("fix"))


@ROUTER.delete("/fixes/{id}", responses=errors(404, 409))
async def undo(id: Number, service: ServiceDep, caller: Fixer) -> schemas.UndoResponse:
    """Undo one fix, exactly."""
    live, admin = service.live, caller.may("admin")
    await _check_own(service, caller, [id])
    lane, owner = (live.urgent, None) if admin else (live.undoings, caller.name)
    work = lane.submit(live.undo, id, who=caller.name, owner=owner)
    lost = await asyncio.wrap_future(work)
    await service.note(caller.name, "undo", fix=id, lost=lost)
    return schemas.UndoResponse(id=id, no_longer_hold=lost)


@ROUTER.post("/rollback", responses=errors(404))
async def rollback(
    body: schemas.RollbackRequest, service: ServiceDep, caller: Admin
) -> schemas.RollbackResponse:
    """Go back to what was live after an entry of the log. Another rollback undoes this one."""
    work = service.live.urgent.submit(service.live.rollback, body.to, who=caller.name)
    now = await asyncio.wrap_future(work)
    await service.note(caller.name, "rollback", to=body.to, head=now.head)
    return schemas.RollbackResponse(head=now.head, fixes=list(now.ids))


@ROUTER.get("/model", responses=errors())
async def model(service: ServiceDep, caller: Answerer) -> dict[str, Any]:
    """The model that is served, its labels, and the caller's role."""
    served, now = service.live.base_model, service.live.now
    return {
        "name": served.name,
        "fingerprint": served.base.fingerprint,
        "task": served.task.name,
        "labels": getattr(served.task, "labels", None),
        "head": now.head,
        "fixes": len(now.ids),
        "role": caller.role,
        "shadow": now.deployment.guard.rules.shadow,
        "chat": bool(served.task.generates and served.tokenizer.chat_template),
    }


@ROUTER.get("/activity", responses=errors())
async def activity(service: ServiceDep, caller: Fixer) -> dict[str, Any]:
    """For the page: what happened when, and how fixes respond to recent questions."""
    with_questions = caller.may("admin") and not service.private
    return await service.in_store(_activity, service, with_questions)


def _activity(service: Service, with_questions: bool) -> dict[str, Any]:
    events = [
        {k: e.get(k) for k in ("at", "who", "what", "fix", "to", "why")}
        for e in service.audit.latest()
        if e["what"] in ("fix", "refused", "undo", "rollback")
    ]
    shown = _responses(service.live.now, with_questions)
    return {"events": events, **shown, "now": time.time()}


def _responses(
    now: Snapshot, with_questions: bool, fixes: int = 24, questions: int = 24
) -> dict[str, Any]:
    """The newest fixes, the latest questions, and the largest pre-activation of each pair."""
    patches = [(i, p) for i, p in now.patches.items() if isinstance(p, Neurons) and p.layer == -1][
        -fixes:
    ]
    asked = now.deployment.recent.latest()[-questions:]
    return {
        "fixes": [{"id": i, "text": p.example.text if p.example else ""} for i, p in patches],
        "questions": [
            {"text": q.text, "answer": q.answer}
            if with_questions
            else {"text": HIDDEN, "answer": ""}
            for q in asked
        ],
        "responses": [
            [round(float(p.rows.response(q.queries).max()), 2) for q in asked] for _, p in patches
        ],
    }
