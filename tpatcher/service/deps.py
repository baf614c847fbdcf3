"""What the routes share, and the check that each of them begins with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tpatcher.errors import BadInput, Denied
from tpatcher.service.answering import Said
from tpatcher.service.auth import Access, Caller, Role
from tpatcher.service.batcher import Batcher
from tpatcher.service.follower import Follower
from tpatcher.service.limits import Limits, Rate
from tpatcher.service.live import Desk
from tpatcher.service.metrics import Metrics
from tpatcher.store.audit import LOG, Audit
from tpatcher.store.reports import Reports

BEARER = HTTPBearer(auto_error=False, description="A token that `tpatcher token` made.")


@dataclass
class State:
    """One running service."""

    desk: Desk
    access: Access
    limits: Limits
    metrics: Metrics
    reports: Reports
    audit: Audit
    batcher: Batcher[tuple[Said, dict[int, float]]]
    rate: Rate
    follower: Follower | None = None
    draining: bool = False
    streams: Any = field(default=None)  # the threads that generate token by token

    def prompt(self, text: str) -> str:
        """A text as the model is asked it; `BadInput` if it is longer than its context."""
        task = self.desk.base.task
        prompt = task.prompt(text) if task.name == "causal" else text  # type: ignore[attr-defined]
        return self.fitting(prompt)

    def fitting(self, prompt: str) -> str:
        """The prompt itself: the service cuts no text, because its end may be what is asked."""
        task = self.desk.base.task
        if len(prompt) > task.context // 2:
            length = len(task.tokenize(prompt, verbose=False).input_ids)
            if length > task.context:
                raise BadInput(f"a text of {length} tokens; the model reads {task.context}")
        return prompt

    def heard(self, text: str, said: Said, fired: dict[int, float]) -> None:
        """Remember a question that was answered."""
        self.desk.now.ground.guard.traffic.add(text, said, sorted(fired))
        for fix in fired:
            self.metrics.firings.labels(str(fix)).inc()


def state(request: Request) -> State:
    """The service behind a request."""
    return request.app.state.service  # type: ignore[no-any-return]


def needs(role: Role) -> Callable[..., Awaitable[Caller]]:
    """A dependency: a caller who may do this, and not too often."""

    async def check(
        request: Request,
        service: Annotated[State, Depends(state)],
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> Caller:
        address = request.client.host if request.client else "?"
        try:
            caller = service.access.caller(request.headers.get("authorization"))
        except Denied as error:
            service.rate.take(f"address {address}")  # so that tokens cannot be guessed at speed
            LOG.warning("denied %r: %s", address, error)
            raise
        service.rate.take(caller.name)
        if not caller.may(role):
            raise Denied(f"{caller.name} has the role {caller.role}; this needs {role}", known=True)
        return caller

    return check


Service = Annotated[State, Depends(state)]
Answerer = Annotated[Caller, Depends(needs("answer"))]
Reporter = Annotated[Caller, Depends(needs("report"))]
Fixer = Annotated[Caller, Depends(needs("fix"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
