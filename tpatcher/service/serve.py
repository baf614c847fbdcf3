"""Starting the service: load the model, fit the editor, open the store, listen."""

import hashlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from tpatcher import data
from tpatcher.editors.tpatcher import TPatcher, solver
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import BadInput, Damaged
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.nets.reading import Reads
from tpatcher.service.app import create_app
from tpatcher.service.auth import Access, is_loopback
from tpatcher.service.connections import BoundedProtocol
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits
from tpatcher.service.live import Deployment
from tpatcher.store.location import Successor, follow, learned, with_password
from tpatcher.store.store import Store

LOG = logging.getLogger("tpatcher.service")
SAMPLE = 200  # canaries that are drawn from the memory if the user gives none


def serve(
    model_name: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    store: str | Path = "fixes.db",
    traffic: str | Path | None = None,
    canaries: str | Path | None = None,
    preset: str = "fast",
    tokens: str | Path | None = None,
    max_flips: int = Rules.max_flips,
    max_firing_share: float = Rules.max_firing_share,
    shadow: bool = Rules.shadow,
    private: bool = Rules.private,
    own_fixes_only: bool = Rules.own_fixes_only,
    abstention: str | None = Rules.abstention,
    task: str | None = None,
    device: str | None = None,
    drain: int = 30,
    limits: Limits | None = None,
    **options: Any,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then give running requests `drain` seconds to end.

    An edit that is not done by then is stopped, and nothing of it is kept. Further options are
    those of `load`.
    """
    access = Access.read(tokens) if tokens is not None else Access()
    if not access.tokens and not is_loopback(host):
        raise BadInput(
            f"without tokens the service listens on this machine only, not on {host!r}; make "
            "tokens with `tpatcher token` and give the service their file"
        )
    name, url = follow(model_name, store)
    app = build(
        load(name, task=task, device=device, **options),
        url,
        name=model_name,
        traffic=traffic,
        canaries=canaries,
        preset=preset,
        access=access,
        limits=limits,
        rules=Rules(max_flips, max_firing_share, shadow, private, abstention, own_fixes_only),
    )
    # A forward pass takes Python's lock hundreds of times, and each time waits this long for the
    # writer if that is in Python too: at the usual 5 ms an answer would take a second beside it.
    sys.setswitchinterval(0.0005)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=BoundedProtocol,
        backlog=128,
        proxy_headers=False,  # or callers could give themselves any address
        timeout_graceful_shutdown=drain,
        server_header=False,
        log_level="warning",
        access_log=False,
    )


def build(
    model: Model,
    store: str | Path,
    *,
    name: str | None = None,
    traffic: str | Path | None = None,
    canaries: str | Path | None = None,
    preset: str = "fast",
    access: Access | None = None,
    limits: Limits | None = None,
    rules: Rules | None = None,
) -> FastAPI:
    """The application for a loaded model; `name` is the one that its traffic is found by."""

    def deploy(model: Model, url: str, progress: bool = False) -> Deployment:
        opened = Store(url, model.base)
        try:
            taught = learned(opened)
            memory = load_memory(model, traffic, name, taught, progress, chosen.reads)
            examples = load_canaries(model, canaries, memory)
            binding = [e.text for e in examples] if canaries is not None else []
            editor = TPatcher(chosen).fit(model, memory)
            return Deployment.of(model, editor, opened, [*examples, *taught], rules, binding)
        except BaseException:
            opened.close()
            raise

    def load_successor(to: Successor) -> Deployment:
        like: dict[str, Any] = {"task": model.task.name, "encoder": model.encoder}
        successor = load(to.model, device=str(model.net.device), **like)
        return deploy(successor, with_password(to.store, str(store)))

    name, chosen = name or model.name, solver(preset)
    return create_app(
        deploy(model, str(store), progress=True),
        load_successor=load_successor,
        access=access,
        limits=limits,
    )


def load_memory(
    model: Model,
    traffic: str | Path | None,
    name: str | None = None,
    learned: Sequence[Example] = (),
    progress: bool = False,
    reads: Reads = "position",
) -> Memory:
    """The memory of a file of texts, cached for the next start, or one that was saved.

    A base that has learned fixes is another one than a memory was saved for, so only the texts
    of that memory are used; what was learned must be left alone like them.
    """
    if traffic is not None and (Path(traffic) / "memory.json").is_file():
        saved = Memory.load(traffic)
        if not learned:
            return saved
        texts = saved.texts
    else:
        texts = data.traffic(name or model.name, traffic)
    texts = list(dict.fromkeys([*texts, *(e.text for e in learned)]))
    digest = hashlib.sha256("\n".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]
    read = "" if reads == "position" else f"-{reads}"
    cached = _cache() / f"{model.base.fingerprint}-{digest}{read}"
    if (cached / "memory.json").is_file():
        try:
            return Memory.load(cached)
        except Damaged:
            LOG.warning("the memory in %s is damaged and is collected again", cached)
    memory = Memory.collect(model, texts, reads=reads, progress=progress)
    try:
        memory.save(cached)
    except OSError as error:
        LOG.warning("the memory cannot be cached for the next start: %s", error)
    return memory


def _cache() -> Path:
    """The directory of memories that are kept between two starts."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tpatcher"


def load_canaries(model: Model, path: str | Path | None, memory: Memory) -> list[Example]:
    """The user's own examples, or a sample of the memory with the answers that it gets now."""
    if path is not None:
        return data.read_examples(path)
    step = max(1, len(memory.texts) // SAMPLE)
    texts: Sequence[str] = memory.texts[::step][:SAMPLE]
    return [Example(t, a) for t, a in zip(texts, model.answer(texts), strict=True)]
