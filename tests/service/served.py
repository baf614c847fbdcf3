"""A small model behind the service, in this process or on a real port."""

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests import zoo
from tpatcher.editors import TPatcher
from tpatcher.example import Example
from tpatcher.models import Model
from tpatcher.service.app import create_app
from tpatcher.store import Store

ASKED = "who wrote hamlet ?"


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


def app(url: str | Path, name: str = "bert", canaries: int = 40, **more: Any) -> FastAPI:
    """The service with a new store."""
    model, editor = fitted(name)
    asked = texts()[:canaries]
    kept = [Example(t, a) for t, a in zip(asked, model.answer(asked), strict=True)]
    return create_app(model, editor, Store(url, model), canaries=kept, **more)


@contextmanager
def client(url: str | Path, name: str = "bert", **more: Any) -> Iterator[TestClient]:
    """Requests from this machine, without a port."""
    with TestClient(
        app(url, name, **more), base_url="http://127.0.0.1", client=("127.0.0.1", 1),
        raise_server_exceptions=False,
    ) as one:  # fmt: skip
        yield one


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """A real port; gives the service's address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
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


def wrong(answer: str) -> str:
    """Another of the classifier's labels."""
    return next(label for label in ("no", "yes", "maybe") if label != answer)
