"""Starting the service: load, fit, open the store, listen."""

import hashlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from tpatcher import data
from tpatcher.editors import TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import BadInput, Damaged
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.service.app import create_app
from tpatcher.service.auth import Access, is_loopback
from tpatcher.service.ground import Ground
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits
from tpatcher.store.location import follow, with_password
from tpatcher.store.log import Successor
from tpatcher.store.store import Store

LOG = logging.getLogger("tpatcher.service")
SAMPLE = 200  # canaries that are drawn from the memory where the user has none


def serve(
    model_name: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    store: str | Path = "fixes.db",
    memory: str | Path | None = None,
    canaries: str | Path | None = None,
    tokens: str | Path | None = None,
    flips: int = 0,
    share: float = Rules.share,
    shadow: bool = False,
    task: str | None = None,
    device: str | None = None,
    drain: int = 30,
    limits: Limits | None = None,
) -> None:
    """Serve a model until SIGTERM or SIGINT; then what was accepted is finished, and it ends."""
    access = Access.read(tokens) if tokens is not None else Access()
    if not access.tokens and not is_loopback(host):
        raise BadInput(
            f"without tokens the service listens on this machine only, not on {host!r}; make "
            "tokens with `tpatcher token` and give --tokens"
        )
    name, place = follow(model_name, store)
    model = load(name, task=task, device=device)
    app = build(
        model, place, name=model_name, memory=memory, canaries=canaries, access=access,
        limits=limits, rules=Rules(flips, share, shadow),
    )  # fmt: skip
    # A forward pass takes Python's lock hundreds of times, and each time waits this long for the
    # writer if that is in Python too: at the usual 5 ms an answer would take a second beside it.
    sys.setswitchinterval(0.0005)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    uvicorn.run(
        app, host=host, port=port, timeout_graceful_shutdown=drain, server_header=False,
        log_level="warning", access_log=False,
    )  # fmt: skip


def build(
    model: Model,
    store: str | Path,
    *,
    name: str | None = None,
    memory: str | Path | None = None,
    canaries: str | Path | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
    rules: Rules | None = None,
) -> FastAPI:
    """The application for a loaded model; `name` is what its traffic is known by."""
    name = name or model.name

    def ground(base: Model, url: str, progress: bool = False) -> Ground:
        kept = Store(url, base)
        try:
            taught = kept.learned()
            seen = traffic(base, memory, name, taught, progress)
            editor = TPatcher().fit(base, seen)
            return Ground.of(base, editor, kept, [*watched(base, canaries, seen), *taught], rules)
        except BaseException:
            kept.close()
            raise

    def way(to: Successor) -> Ground:
        base = load(to.model, task=model.task.name, device=str(model.net.device))
        return ground(base, with_password(to.store, str(store)))

    return create_app(ground(model, str(store), True), way=way, access=access, limits=limits)


def traffic(
    model: Model,
    path: str | Path | None,
    name: str | None = None,
    taught: Sequence[Example] = (),
    progress: bool = False,
) -> Memory:
    """The memory: one that was saved, or that of a file of texts, kept for the next start.

    A base that was taught fixes is another one than a memory was saved for: only the texts of
    that one count, and what was taught is to be left alone as they are.
    """
    if path is not None and (Path(path) / "memory.json").is_file():
        saved = Memory.load(path)
        if not taught:
            return saved
        texts = saved.texts
    else:
        texts = data.traffic(name or model.name, path)
    texts = list(dict.fromkeys([*texts, *(e.text for e in taught)]))
    digest = hashlib.sha256("\n".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]
    kept = cache() / f"{model.base.fingerprint}-{digest}"
    if (kept / "memory.json").is_file():
        try:
            return Memory.load(kept)
        except Damaged:  # it can be had again
            LOG.warning("the memory in %s is damaged and is collected again", kept)
    memory = Memory.collect(model, texts, progress=progress)
    try:
        memory.save(kept)
    except OSError as error:
        LOG.warning("the memory cannot be kept for the next start: %s", error)
    return memory


def cache() -> Path:
    """Where memories are kept between two starts."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tpatcher"


def watched(model: Model, path: str | Path | None, memory: Memory) -> list[Example]:
    """The canaries: the user's own examples, or a sample of the memory as it is answered now."""
    if path is not None:
        return data.read_examples(path)
    step = max(1, len(memory.texts) // SAMPLE)
    texts: Sequence[str] = memory.texts[::step][:SAMPLE]
    return [Example(t, a) for t, a in zip(texts, model.answer(texts), strict=True)]
