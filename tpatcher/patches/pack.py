"""A pack: a directory with the patches of one model, to keep, send and load again."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from tpatcher import files
from tpatcher.errors import BadInput, Damaged, StaleHead, WrongBase
from tpatcher.patches import MALFORMED, from_meta
from tpatcher.patches.base import Patch
from tpatcher.patches.card import card

try:
    import fcntl
except ImportError:  # Windows has no such locks: there `replacing` alone protects a pack
    fcntl = None  # type: ignore[assignment]

INDEX = "patches.json"
_LOCKED: ContextVar[frozenset[Path]] = ContextVar("locked", default=frozenset())


@dataclass(frozen=True)
class Base:
    """Which model patches were made for."""

    name: str
    fingerprint: str


@contextmanager
def lock(directory: str | Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep every other writer of a pack waiting, from reading it to writing it.

    `waiting` is called if another one has the lock and this one has to wait.
    """
    path = Path(directory).resolve()
    if path in _LOCKED.get() or fcntl is None:
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    with (path / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        token = _LOCKED.set(_LOCKED.get() | {path})
        try:
            yield
        finally:
            _LOCKED.reset(token)


def index(directory: str | Path) -> bytes:
    """The index of a pack as it lies on the disk, to give to `write` later; empty if none."""
    try:
        return (Path(directory) / INDEX).read_bytes()
    except FileNotFoundError:
        return b""


def write(
    directory: str | Path,
    patches: Sequence[Patch],
    base: Base,
    text: bool = True,
    replacing: bytes | None = None,
) -> bytes:
    """Save the patches; without `text`, the reported examples are left out. Returns the index.

    The index is replaced last and at once: a reader sees the old pack or the new one. With
    `replacing`, the index that the patches were read with, it raises `StaleHead` and changes
    nothing if another process has written the pack since.
    """
    from tpatcher import __version__

    path = Path(directory)
    kept = [p if text else p.without_text() for p in patches]
    tensors = {f"{p.id}.{k}": t for p in kept for k, t in p.tensors.items()}
    blob = save_tensors(tensors)
    checksum = hashlib.sha256(blob).hexdigest()
    file = f"patches-{checksum[:12]}.safetensors"
    described = {
        "tpatcher": __version__,
        "base": {"name": base.name, "fingerprint": base.fingerprint},
        "tensors": {"file": file, "sha256": checksum},
        "patches": [p.meta for p in kept],
    }
    made = json.dumps(described, indent=1, ensure_ascii=False).encode()
    with lock(path):
        before = index(path)
        if replacing is not None and replacing != before:
            raise StaleHead(
                f"{path} was changed since it was read ({_difference(replacing, before)}), so "
                "nothing was written; read it again and make the fix for what is there now"
            )
        files.write_atomic(path / file, blob)
        files.write_atomic(path / INDEX, made)
        files.write_atomic(path / "README.md", card(kept, base).encode())
        stale = _parsed(before).get("tensors", {}).get("file")
        if isinstance(stale, str) and stale != file and Path(stale).name == stale:
            (path / stale).unlink(missing_ok=True)
    return made


def read(directory: str | Path, base: Base | None = None) -> list[Patch]:
    """The patches of a pack, in order; refused if they were made for another base model."""
    before = index(directory)
    while True:
        try:
            return _read(Path(directory), before, base)
        except Damaged:
            # a writer may have put another index and other tensors there meanwhile: look again
            now = index(directory)
            if now == before:
                raise
            before = now


def _read(path: Path, raw: bytes, base: Base | None) -> list[Patch]:
    if not raw:
        raise BadInput(f"{path} is not a pack of patches: it has no {INDEX}")
    try:
        described = json.loads(raw)
        made_for = Base(**described["base"])
        file, checksum = described["tensors"]["file"], described["tensors"]["sha256"]
        metas = described["patches"]
        ids = [str(meta["id"]) for meta in metas]
        if not isinstance(file, str):
            raise TypeError(f"the file of the tensors is {file!r:.60}")
    except MALFORMED as error:
        raise Damaged(f"{path / INDEX} cannot be read: {error!r}") from error
    if base is not None and made_for.fingerprint != base.fingerprint:
        both = (made_for.fingerprint, base.fingerprint)
        net_only = {fingerprint.split("+")[0] for fingerprint in both}
        raise WrongBase(
            f"{path} was made for {made_for.name!r} ({made_for.fingerprint}), but this model is "
            f"{base.name!r} ({base.fingerprint})"
            + ("; load it with the same sentence encoder (encoder=)" if len(net_only) == 1 else "")
        )
    gone = Damaged(f"{path / INDEX} names the tensors {file!r}, which are not there")
    if Path(file).name != file or not (path / file).is_file():
        raise gone
    try:
        blob = (path / file).read_bytes()
    except FileNotFoundError:
        raise gone from None
    if hashlib.sha256(blob).hexdigest() != checksum:
        raise Damaged(f"{path / file} is not what was saved: its checksum differs")
    try:
        tensors = load_tensors(blob)
    except (SafetensorError, *MALFORMED) as error:
        raise Damaged(f"{path / file} cannot be read: {error}") from error
    out = []
    for one, meta in zip(ids, metas, strict=True):
        mine = {k.removeprefix(f"{one}."): t for k, t in tensors.items() if k.startswith(f"{one}.")}
        out.append(from_meta(meta, mine))
    return out


def _parsed(raw: bytes) -> dict[str, Any]:
    """An index as a dict; an empty one if it cannot be read."""
    try:
        found = json.loads(raw)
        return found if isinstance(found, dict) else {}
    except MALFORMED:
        return {}


def _difference(before: bytes, now: bytes) -> str:
    """Which fixes have come to an index, and which have gone from it."""
    old, new = ([p["id"] for p in _parsed(raw).get("patches", ())] for raw in (before, now))
    came = [id for id in new if id not in old]
    gone = [id for id in old if id not in new]
    parts = [f"{what}: {', '.join(ids)}" for what, ids in (("new", came), ("gone", gone)) if ids]
    return "; ".join(parts) or "the same fixes, written anew"
