"""Starting the service: load, fit, open the store, listen."""

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from tpatcher import data
from tpatcher.editors import TPatcher
from tpatcher.errors import BadInput, Damaged, NoMemory
from tpatcher.example import Example
from tpatcher.memory import Memory
from tpatcher.models import BUILTIN, Model, load
from tpatcher.service.access import Access, is_loopback
from tpatcher.service.app import create_app
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits
from tpatcher.store import Store

LOG = logging.getLogger("tpatcher.service")
ENOUGH = 8_000  # texts that are taken of a built-in model's training set
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
    model = load(model_name, task=task, device=device)
    app = build(
        model, store, memory=memory, canaries=canaries, access=access, limits=limits,
        rules=Rules(flips, share, shadow),
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    uvicorn.run(
        app, host=host, port=port, timeout_graceful_shutdown=drain, server_header=False,
        log_level="warning", access_log=False,
    )  # fmt: skip


def build(
    model: Model,
    store: str | Path,
    *,
    memory: str | Path | None = None,
    canaries: str | Path | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
    rules: Rules | None = None,
) -> FastAPI:
    """The application for a loaded model."""
    seen = traffic(model, memory)
    editor = TPatcher().fit(model, seen)
    return create_app(
        model, editor, Store(store, model), canaries=watched(model, canaries, seen),
        access=access, limits=limits, rules=rules,
    )  # fmt: skip


def traffic(model: Model, path: str | Path | None) -> Memory:
    """The memory: one that was saved, or that of a file of texts, kept for the next start."""
    if path is not None and (Path(path) / "memory.json").is_file():
        return Memory.load(path)
    if path is not None:
        texts = data.read_texts(path)
    elif model.name in BUILTIN:
        known = [e.text for e in data.dataset(model.name).train]
        texts = known[:: max(1, len(known) // ENOUGH)]
    else:
        raise NoMemory(
            "the service must know ordinary traffic to leave it alone: give --memory a file with "
            "a few thousand texts like those the model is used on (.txt, .jsonl, .csv)"
        )
    digest = hashlib.sha256("\n".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]
    kept = cache() / f"{model.base.fingerprint}-{digest}"
    if (kept / "memory.json").is_file():
        try:
            return Memory.load(kept)
        except Damaged:  # it can be had again
            LOG.warning("the memory in %s is damaged and is collected again", kept)
    memory = Memory.collect(model, texts, progress=True)
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
