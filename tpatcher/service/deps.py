"""What the routes depend on: the running service, and a caller who may use the route."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tpatcher.errors import BadInput, Denied, NotStored, TPatcherError
from tpatcher.nets.tasks import Task
from tpatcher.service.answering import Reply
from tpatcher.service.auth import Access, Caller, Role
from tpatcher.service.batcher import Batcher
from tpatcher.service.follower import Follower
from tpatcher.service.lane import Lane
from tpatcher.service.limits import Limits, Rate
from tpatcher.service.live import LiveModel
from tpatcher.service.metrics import Metrics
from tpatcher.service.recent import RecentQuestions
from tpatcher.store.audit import LOG, Audit
from tpatcher.store.reports import Reports

BEARER = HTTPBearer(auto_error=False, description="A token that `tpatcher token` made.")
STORE_THREADS = 8
STORE_PATIENCE = 30.0  # seconds that a request waits for the store
T = TypeVar("T")


class Service:
    """One running service."""

    def __init__(self, live: LiveModel, access: Access, limits: Limits, metrics: Metrics) -> None:
        self.live, self.access, self.limits, self.metrics = live, access, limits, metrics
        self.rate = Rate(limits)
        self.reports = Reports(lambda: live.store, limits.reports)
        self.audit = Audit(lambda: live.store)
        self.batcher = Batcher(live.answer, size=32, limit=limits.queue)
        self.streams = ThreadPoolExecutor(2, "stream")  # generate token by token
        self.free_streams = threading.BoundedSemaphore(limits.streams)
        self._store_lane = Lane("requests to the store", limits.store, STORE_THREADS)
        self.follower = Follower(live, metrics)
        metrics.gauge("patches", "Fixes that are live.", lambda: len(live.now.ids))
        metrics.gauge("damaged", "Fixes that are left out.", lambda: len(live.now.damaged))
        metrics.gauge("head", "The newest entry that is applied.", lambda: live.now.head)

    def close(self) -> None:
        """Finish what was accepted, then stop."""
        self.follower.close()
        self.batcher.close()
        self.streams.shutdown()
        self._store_lane.close()
        self.live.close()

    async def in_store(self, work: Callable[..., T], *args: Any, **more: Any) -> T:
        """Do what needs the store in threads of its own: one that hangs keeps no answer waiting."""
        future = asyncio.wrap_future(self._store_lane.submit(work, *args, **more))
        try:
            return await asyncio.wait_for(future, STORE_PATIENCE)
        except TimeoutError:
            raise NotStored(
                f"the store has not answered for {STORE_PATIENCE:g} s; look whether this was done "
                "before you repeat it"
            ) from None

    async def note(self, who: str, what: str, **detail: Any) -> None:
        """Add to the audit log; what was done is done, also if the store does not answer now."""
        try:
            await self.in_store(self.audit.note, who, what, **detail)
        except TPatcherError as error:
            line = {"not kept": str(error), "who": who, "what": what, **detail}
            LOG.warning("%s", json.dumps(line))

    @property
    def private(self) -> bool:
        """Whether texts of others are shown to nobody."""
        return self.live.now.deployment.guard.rules.private

    @property
    def task(self) -> Task:
        """The task of the model that is served."""
        return self.live.base_model.task

    @property
    def recent(self) -> RecentQuestions:
        """The latest questions to the base that is served."""
        return self.live.now.deployment.recent

    def prompt(self, text: str) -> str:
        """The text as the model is asked it."""
        return self.task.prompt(text)

    def check_length(self, prompts: Sequence[str]) -> None:
        """Raise `BadInput` for a prompt beyond the model's context; the service never truncates."""
        context = self.task.context
        # neither characters nor bytes bound the tokens: a tokenizer may spell one letter as 18
        for ids in self.task.tokenize(list(prompts), verbose=False).input_ids:
            if len(ids) > context:
                raise BadInput(f"a text has {len(ids)} tokens, but the model reads {context}")

    def remember(self, text: str, reply: Reply, fired: dict[int, float]) -> None:
        """Keep a question that was answered, and count the fixes that fired for it."""
        self.recent.add(text, reply)
        for fix in fired:
            self.metrics.firings.labels(str(fix)).inc()


async def _get_service(request: Request) -> Service:
    """The service behind a request."""
    return request.app.state.service  # type: ignore[no-any-return]


ServiceDep = Annotated[Service, Depends(_get_service)]


def _require(role: Role) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the caller, who must have this role and not call too often."""

    async def caller(
        request: Request,
        service: ServiceDep,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> Caller:
        address = request.client.host if request.client else "?"
        try:
            known = service.access.caller(bearer.credentials if bearer else None)
        except Denied as error:
            service.rate.take(f"address {address}")  # so that tokens cannot be guessed at speed
            LOG.warning("denied %r: %s", address, error)
            raise
        service.rate.take(known.name)
        if not known.may(role):
            raise Denied(f"{known.name} has the role {known.role}; this needs {role}", known=True)
        return known

    return caller


Answerer = Annotated[Caller, Depends(_require("answer"))]
Reporter = Annotated[Caller, Depends(_require("report"))]
Fixer = Annotated[Caller, Depends(_require("fix"))]
Admin = Annotated[Caller, Depends(_require("admin"))]
