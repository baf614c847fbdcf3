"""The FastAPI application: the routes, and one handler that turns errors into status codes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from tpatcher import __version__
from tpatcher import errors as err
from tpatcher.service import desk, openai, routes
from tpatcher.service.api_page import render
from tpatcher.service.auth import Access
from tpatcher.service.deps import Answerer, Service, ServiceDep
from tpatcher.service.guard import Verdict
from tpatcher.service.limits import Limits
from tpatcher.service.live import Deployment, LiveModel, LoadSuccessor
from tpatcher.service.metrics import Metrics
from tpatcher.service.middleware import (
    SECURITY_HEADERS,
    AccessMiddleware,
    HeadersMiddleware,
    MetricsMiddleware,
    StoppingMiddleware,
)
from tpatcher.service.schemas import errors

PAGE = Path(__file__).with_name("page")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# The status of each error; one that is not listed has that of the class it is derived from.
STATUS: dict[type, int] = {
    err.TPatcherError: 422,  # what was asked for cannot be had
    err.Denied: 401,
    err.NotFound: 404,
    err.AlreadyRight: 409,
    err.Conflict: 409,
    err.StaleHead: 409,
    err.NotRemovable: 409,
    err.Busy: 429,
    err.NotStored: 503,
    err.Damaged: 503,
}
# The page runs no script but its own and talks to its own service, nothing else.
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def create_app(
    deployment: Deployment,
    *,
    load_successor: LoadSuccessor | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """The service for a deployment; `load_successor` loads the one that its store moves to."""
    limits, access, metrics = limits or Limits(), access or Access(), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        live = LiveModel(deployment, limits.edits, load_successor, limits.deadline)
        app.state.service = Service(live, access, limits, metrics)
        yield
        app.state.service.close()

    app = FastAPI(
        title="tpatcher",
        version=__version__,
        lifespan=lifespan,
        description="Report a mistake, and the next user gets the right answer.",
        exception_handlers={
            err.TPatcherError: _tpatcher_error,
            RequestValidationError: _validation_error,
            HTTPException: _framework_error,
            Exception: _unexpected_error,
        },
        docs_url=None,  # FastAPI's pages run scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(routes.ROUTER)
    app.include_router(desk.ROUTER)
    app.include_router(openai.ROUTER)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"], responses={503: {}})
    app.add_api_route(
        "/metrics", metrics_text, responses=errors(), response_class=PlainTextResponse
    )
    app.add_api_route("/", page, include_in_schema=False)
    app.add_api_route("/page/{name}", page, include_in_schema=False)
    app.add_api_route("/docs", api_page, include_in_schema=False)
    app.add_middleware(AccessMiddleware, limits=limits, access=access)
    app.add_middleware(MetricsMiddleware, metrics=metrics)
    app.add_middleware(StoppingMiddleware)
    app.add_middleware(HeadersMiddleware)
    return app


async def healthz() -> dict[str, str]:
    """The process is there."""
    return {"status": "ok"}


async def readyz(service: ServiceDep) -> Response:
    """The store is followed, and all its fixes answer; if not, the message says why."""
    if problem := service.follower.problem or service.live.now.problem:
        return _error_response(503, "NotReady", problem)
    return JSONResponse({"status": "ok", "head": service.live.now.head})


async def metrics_text(service: ServiceDep, caller: Answerer) -> Response:
    """Prometheus metrics."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


async def page(name: str = "index.html") -> Response:
    """The page, or one of the files that it is made of."""
    if name not in _page_files():
        raise HTTPException(404)
    headers = {"Content-Security-Policy": POLICY.format(script="'self'", style="'self'")}
    kind = TYPES[Path(name).suffix]
    return Response(_page_files()[name], media_type=kind, headers=headers)


@cache
def _page_files() -> dict[str, bytes]:
    """The files of the page by their names; a request can name no others."""
    return {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}


async def api_page(request: Request) -> Response:
    """The API's documents."""
    policy = POLICY.format(script="'none'", style="'unsafe-inline'")
    content = render(request.app.openapi())
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})


def _error_response(status: int, kind: str, message: str, **more: Any) -> Response:
    """An error in the shape that all errors have; JSON's `ensure_ascii` survives any text."""
    body = json.dumps({"error": {"type": kind, "message": message, **more}})
    return Response(body, status, media_type="application/json")


async def _tpatcher_error(request: Request, error: Exception) -> Response:
    """The response to an error that tpatcher raised on purpose."""
    more: dict[str, Any] = {}
    if isinstance(error, err.Refused) and isinstance(error.verdict, Verdict):
        more["verdict"] = error.verdict.to_json()
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if isinstance(error, err.Denied) and error.known:
        status = 403
    response = _error_response(status, type(error).__name__, str(error), **more)
    if isinstance(error, err.Busy):
        response.headers["Retry-After"] = str(max(1, round(error.after)))
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def _validation_error(request: Request, error: Exception) -> Response:
    """The response to a body or parameter of the wrong shape; it does not repeat what was sent."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
    return _error_response(422, "BadInput", "; ".join(lines))


async def _unexpected_error(request: Request, error: Exception) -> Response:
    """The response to what should not happen; the traceback is in the log, not in the response."""
    response = _error_response(500, "InternalServerError", "the service failed; its log says why")
    # it is sent outside of all middleware
    response.headers.update({k.decode(): v.decode() for k, v in SECURITY_HEADERS.items()})
    return response


async def _framework_error(request: Request, error: Exception) -> Response:
    """The response to what FastAPI refuses: NotFound, MethodNotAllowed, BadRequest."""
    assert isinstance(error, HTTPException)
    kind = HTTPStatus(error.status_code).phrase.replace(" ", "")
    response = _error_response(error.status_code, kind, str(error.detail))
    response.headers.update(error.headers or {})
    return response
