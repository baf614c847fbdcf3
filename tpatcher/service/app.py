"""The FastAPI application: the routes, and one handler that turns errors into status codes."""

import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from tpatcher import __version__
from tpatcher import errors as err
from tpatcher.service.auth import Access
from tpatcher.service.batcher import Batcher
from tpatcher.service.deps import Answerer, Service, State
from tpatcher.service.follower import Follower
from tpatcher.service.ground import Ground, Way
from tpatcher.service.guard import Verdict
from tpatcher.service.limits import Gate, Limits, Rate
from tpatcher.service.live import Desk
from tpatcher.service.metrics import Measured, Metrics
from tpatcher.service.openai import OPENAI
from tpatcher.service.routes import API
from tpatcher.service.schemas import errors
from tpatcher.store.audit import Audit
from tpatcher.store.reports import Reports

PAGE = Path(__file__).with_name("page.html")
STATUS: dict[type[err.TPatcherError], int] = {
    err.NotFound: 404,
    err.AlreadyRight: 409,
    err.Conflict: 409,
    err.StaleHead: 409,
    err.NotRemovable: 409,
    err.Busy: 429,
    err.NotStored: 503,
    err.Damaged: 503,
}  # and 422 for all others: what was asked for cannot be had
# The page runs its own script and talks to its own service, nothing else.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"  # noqa: E501


def create_app(
    ground: Ground,
    *,
    way: Way | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """The service for one base model; `way` loads another, should its chain move there."""
    limits, access, metrics = limits or Limits(), access or Access(), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = Desk(ground, limits.edits, way)
        service = State(
            desk=desk, access=access, limits=limits, metrics=metrics,
            reports=Reports(lambda: desk.store, limits.reports), audit=Audit(lambda: desk.store),
            batcher=Batcher(desk.say, size=32, limit=limits.queue), rate=Rate(limits),
            follower=Follower(desk, metrics),
            streams=ThreadPoolExecutor(2, "stream"),
        )  # fmt: skip
        metrics.gauge("patches", "Fixes that are live.", lambda: len(desk.now.ids))
        metrics.gauge("head", "The newest entry that is worn.", lambda: desk.now.head)
        app.state.service = service
        yield
        service.draining = True
        assert service.follower is not None
        service.follower.close()
        service.batcher.close()
        service.streams.shutdown()
        desk.close()
        desk.store.close()

    app = FastAPI(
        title="tpatcher", version=__version__, lifespan=lifespan,
        description="Report a mistake, and the next user gets the right answer.",
    )  # fmt: skip
    app.include_router(API)
    app.include_router(OPENAI)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"], responses={503: {}})
    app.add_api_route(
        "/metrics", told, methods=["GET"], responses=errors(), response_class=PlainTextResponse
    )
    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(err.TPatcherError, failed)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_middleware(Gate, body=limits.body, local=not access.tokens)
    app.add_middleware(Measured, metrics=metrics)
    return app


def healthz() -> dict[str, str]:
    """The process is there."""
    return {"status": "ok"}


def readyz(service: Service) -> Response:
    """Answers can be had, and the store can be followed."""
    follower = service.follower
    if service.draining or follower is None or follower.behind > 10:
        return failure(503, "NotReady", "draining, or the store cannot be read")
    return JSONResponse({"status": "ok", "head": service.desk.now.head})


def told(service: Service, caller: Answerer) -> Response:
    """Prometheus metrics."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


def page() -> Response:
    """The page."""
    return HTMLResponse(PAGE.read_bytes(), headers={"Content-Security-Policy": POLICY})


def failure(status: int, kind: str, message: str, **more: Any) -> Response:
    """An error in the one shape that all have; `ensure_ascii` survives any text."""
    body = json.dumps({"error": {"type": kind, "message": message, **more}})
    return Response(body, status, media_type="application/json")


async def failed(request: Request, error: Exception) -> Response:
    """Everything that tpatcher raises on purpose."""
    more: dict[str, Any] = {}
    if isinstance(error, err.Refused) and isinstance(error.verdict, Verdict):
        more["verdict"] = error.verdict.to_json()
    status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 422)
    if isinstance(error, err.Denied):
        status = 403 if error.known else 401
    response = failure(status, type(error).__name__, str(error), **more)
    if isinstance(error, err.Busy):
        response.headers["Retry-After"] = str(max(1, round(error.after)))
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def invalid(request: Request, error: Exception) -> Response:
    """A body or a parameter that has not the right shape; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
    return failure(422, "BadInput", "; ".join(lines))


async def plain(request: Request, error: Exception) -> Response:
    """What the framework refuses: a path or a method that is not there, a body that is no JSON."""
    assert isinstance(error, HTTPException)
    response = failure(error.status_code, "NotFound", str(error.detail))
    response.headers.update(error.headers or {})
    return response
