"""The desk: one model that answers, and one writer that changes what it is.

Answers read one reference, `now`; the writer prepares the next moment on a twin and then assigns
it. So an answer comes from before a change or from after it, never from between. That the store
has moved to another base is a change like any other: only what it is made on changes too.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

from tpatcher.checkpoints.handover import carry
from tpatcher.editors import Editor
from tpatcher.errors import BadInput, Busy, NotFound, Refused, StaleHead, StoreMoved, TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.base import Patch
from tpatcher.service.answering import Said, Watch
from tpatcher.service.ground import Ground, Way
from tpatcher.service.guard import Verdict
from tpatcher.store.log import Successor
from tpatcher.store.store import Fix, Store

LOG = logging.getLogger("tpatcher.service")
T = TypeVar("T")


@dataclass(frozen=True)
class Moment:
    """What is live between two changes."""

    ground: Ground
    head: int
    ids: tuple[int, ...]  # the fixes' numbers in the store, in the order of the model's patches
    model: Model
    watch: Watch

    @classmethod
    def of(cls, ground: Ground, head: int, ids: Sequence[int], model: Model) -> "Moment":
        return cls(ground, head, tuple(ids), model, Watch(model))


@dataclass(frozen=True)
class Made:
    """A fix that went live, or would have (`id` None: a dry run)."""

    id: int | None
    certificate: dict[str, Any]
    verdict: Verdict
    repeated: bool = False  # the same request had been done before


class Desk:
    """What is live, and the one writer who changes it."""

    def __init__(self, ground: Ground, pending: int = 16, way: Way | None = None) -> None:
        self.now = Moment.of(ground, 0, (), ground.base.twin())
        self.way = way
        self.slots, self.pending = threading.BoundedSemaphore(pending), pending
        self.writer = ThreadPoolExecutor(1, "writer", initializer=one_core)
        threads = torch.get_num_threads()
        self.write(self.sync).result()
        torch.set_num_threads(threads)  # the writer has set its own, and with it the default

    @property
    def base(self) -> Model:
        """The model without any fix."""
        return self.now.ground.base

    @property
    def store(self) -> Store:
        """The store of what is live."""
        return self.now.ground.store

    def write(self, work: Callable[..., T], *args: Any, **more: Any) -> "Future[T]":
        """Let the one writer do something; `Busy` if too much waits for it already."""
        if not self.slots.acquire(blocking=False):
            raise Busy(f"{self.pending} changes are waiting already", after=5)
        future = self.writer.submit(work, *args, **more)
        future.add_done_callback(lambda _: self.slots.release())
        return future

    def close(self) -> None:
        """Finish what is waiting."""
        self.writer.shutdown()

    def say(self, prompts: Sequence[str]) -> list[tuple[Said, dict[int, float]]]:
        """Answers, and by number which fixes fired how strongly."""
        now = self.now  # read once: all of a batch is answered by one model
        said = now.watch.say(prompts)
        return [(one, {now.ids[i]: r for i, r in one.fired.items()}) for one in said]

    def sync(self) -> bool:
        """Wear what the store says is live; whether that is a change."""
        now, head = self.now, self.store.head
        if head == now.head:
            return False
        if to := self.store.successor():
            self._move(to)
        else:
            known = dict(zip(now.ids, now.model.patches, strict=True))
            self.now = worn(now.ground, head, known)
        return True

    def _move(self, to: Successor) -> None:
        """Stand on another base: it is made ready while the old one answers, then swapped."""
        LOG.info("the store has moved: %r is made ready", to.model)
        left = self.store
        if self.way is None:
            raise StoreMoved(
                f"this store has moved; start the service with {to.model!r}, {to.store!r}"
            )
        try:
            ground = self.way(to)
            self.now = worn(ground, ground.store.head, {})
        except Exception as error:  # whatever it is, the old base goes on answering
            why = error if isinstance(error, TPatcherError) else repr(error)
            raise StoreMoved(
                f"this store has moved to {to.model!r}, which is not ready: {why}"
            ) from error
        LOG.info("moved to %r with %d fixes", to.model, len(self.now.ids))
        carry(left, ground.store)  # what came in since the move was made
        left.close()

    def fix(
        self,
        example: Example,
        *,
        who: str = "",
        key: str | None = None,
        dry_run: bool = False,
        supersede: bool = False,
    ) -> Made:
        """Edit a twin, ask the guard, keep the patch, and only then let it answer."""
        for _ in range(8):
            self.sync()
            if key is not None and (past := self.store.by_key(who, key)):
                return repeated(past, example, key)
            now = self.now
            after = now.model.twin()
            patch = now.ground.editor.edit(after, example, supersede=supersede)
            after.push(patch)
            verdict = now.ground.guard.check(now.model, now.ids, after, patch, example)
            if verdict.refuses and not dry_run:
                raise Refused("the guard refuses: " + "; ".join(verdict.reasons), verdict)
            if dry_run:
                return Made(None, dict(patch.report), verdict)
            try:
                id = keep(now, patch, who, key, verdict)
            except StaleHead:  # another replica was first: edit and guard once more, on top of it
                continue
            self.now = Moment.of(now.ground, id, (*now.ids, id), after)
            return Made(id, dict(patch.report), verdict)
        raise Busy("other replicas keep changing the store", after=2)

    def undo(self, id: int, who: str = "") -> list[int]:
        """Take one fix off; returns the newer ones that leaned on it and no longer hold."""
        for _ in range(8):
            self.sync()
            now = self.now
            if id not in now.ids:
                raise NotFound(f"fix {id} is not live")
            after = now.model.twin()
            lost = after.remove(now.model.patches[now.ids.index(id)].id)
            try:
                head = self.store.remove(id, parent=now.head, who=who)
            except StaleHead:
                continue
            by_patch = dict(zip((p.id for p in now.model.patches), now.ids, strict=True))
            self.now = Moment.of(now.ground, head, [i for i in now.ids if i != id], after)
            return [by_patch[p.id] for p in lost]
        raise Busy("other replicas keep changing the store", after=2)

    def rollback(self, to: int, who: str = "") -> Moment:
        """Wear what was live after entry `to` of the log."""
        self.sync()
        self.store.rollback(to, who=who)
        self.sync()
        return self.now


def worn(ground: Ground, head: int, known: dict[int, Patch]) -> Moment:
    """What the store says is live at an entry; patches that are known by number are not read."""
    ids = ground.store.live_ids(head) if head else []
    new = [i for i in ids if i not in known]
    known = known | dict(zip(new, ground.store.patches(new), strict=True))
    model = ground.base.twin()
    model.set_patches(known[i] for i in ids)
    return Moment.of(ground, head, ids, model)


def keep(now: Moment, patch: Patch, who: str, key: str | None, verdict: Verdict) -> int:
    """Put a patch that was made for this moment into its store; returns its number."""
    report = {"certificate": dict(patch.report), "guard": verdict.to_json()}
    return now.ground.store.append(
        patch, parent=now.head, who=who, key=key, report=report,
        settings=settings(now.ground.editor),
    )  # fmt: skip


def repeated(past: Fix, example: Example, key: str) -> Made:
    """The answer to a request that was done before; a key is for one request only."""
    if past.example != example:
        raise BadInput(f"Idempotency-Key {key!r} was used for another fix, number {past.id}")
    guard = past.report["guard"]
    return Made(past.id, past.report["certificate"], Verdict(**guard), repeated=True)


def settings(editor: Editor) -> dict[str, Any]:
    """An editor's knobs, as far as JSON can hold them; its memory is no knob."""
    knobs = {k: v for k, v in vars(editor).items() if not k.startswith("_") and k != "memory"}
    plain = {k: asdict(v) if hasattr(v, "__dataclass_fields__") else v for k, v in knobs.items()}
    return {k: v for k, v in plain.items() if isinstance(v, str | int | float | dict | None)}


def one_core() -> None:
    """Let the writer leave the other cores to the answers.

    It keeps its priority: a thread that waits for the processor while it holds the interpreter's
    lock would keep the answers waiting too.
    """
    torch.set_num_threads(1)
