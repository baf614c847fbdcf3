"""A small model behind the service, in this process or on a real port."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests import zoo
from tpatcher.editors import TPatcher
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.service.app import create_app
from tpatcher.service.connections import BoundedProtocol
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits
from tpatcher.service.live import Deployment
from tpatcher.store.store import Store

ASKED = "who wrote hamlet ?"
RUN = """
import sys
from tpatcher.service import serve
serve(sys.argv[1], port=int(sys.argv[2]), store=sys.argv[3], traffic=sys.argv[4])
"""


@cache
def texts(n: int = 200) -> tuple[str, ...]:
    """Made-up traffic."""
    rng = random.Random(0)
    return tuple(" ".join(rng.choices(zoo.WORDS, k=6)) for _ in range(n))


@cache
def fitted(name: str = "bert") -> tuple[Model, TPatcher]:
    """A model and an editor that has seen the traffic."""
    task = zoo.ARCHITECTURES[name]
    model = Model(zoo.net(name), zoo.tokenizer(task), task)
    return model, TPatcher().fit(model, list(texts()))


def app(
    url: str | Path,
    name: str = "bert",
    canaries: int = 40,
    rules: Rules | None = None,
    limits: Limits | None = None,
    **more: Any,
) -> FastAPI:
    """The service with a new store; an edit takes as long as it does on a busy machine."""
    model, editor = fitted(name)
    asked = texts()[:canaries]
    kept = [Example(t, a) for t, a in zip(asked, model.answer(asked), strict=True)]
    limits = replace(limits or Limits(), deadline=None)
    deployment = Deployment.of(model, editor, Store(url, model.base), kept, rules)
    return create_app(deployment, limits=limits, **more)


@contextmanager
def client(url: str | Path, name: str = "bert", **more: Any) -> Iterator[TestClient]:
    """Requests from this machine, without a port."""
    with TestClient(
        app(url, name, **more), base_url="http://127.0.0.1", client=("127.0.0.1", 1),
        raise_server_exceptions=False,
    ) as one:  # fmt: skip
        yield one


@contextmanager
def listening(app: FastAPI, http: type[BoundedProtocol] = BoundedProtocol) -> Iterator[str]:
    """A real port; gives the service's address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", http=http))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is true; the time is a safety net and not an expectation."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.02)


def wrong(answer: str) -> str:
    """Another of the classifier's labels."""
    return next(label for label in ("no", "yes", "maybe") if label != answer)


def save(path: Path) -> None:
    """The tiny classifier as a directory, and its traffic as a file."""
    fitted()[0].net.save_pretrained(path / "model")
    zoo.tokenizer("classify").save_pretrained(path / "model")
    (path / "texts.txt").write_text("\n".join(texts()))


class Process:
    """`serve` in a process of its own."""

    def __init__(self, saved: Path, store: str, code: str = RUN, *more: str) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        args = [str(saved / "model"), str(port), store, str(saved / "texts.txt"), *more]
        self.log = (saved / f"{port}.log").open("w+")
        env = {**os.environ, "XDG_CACHE_HOME": str(saved / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *args], stdout=self.log, stderr=self.log, env=env
        )

    def ready(self) -> Self:
        until(self._answers)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return httpx.get(f"{self.address}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def post(self, path: str, body: dict[str, object]) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/{path}", json=body, timeout=30)

    def ask(self, text: str = ASKED) -> str:
        return str(self.post("answer", {"text": text}).json()["answers"][0]["answer"])

    def end(self, how: int = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        code = self.process.wait(30)
        self.log.close()
        return code
