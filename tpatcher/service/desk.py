"""The desk: one model that answers, and one writer that changes what it is.

Answers read one reference, `now`; the writer prepares the next moment on a twin and then assigns
it. So an answer comes from before a change or from after it, never from between.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

from tpatcher.editors import Editor
from tpatcher.errors import BadInput, Busy, HeadMoved, NotFound, Refused
from tpatcher.example import Example
from tpatcher.models import Model
from tpatcher.patch import Patch
from tpatcher.service.guard import Guard, Verdict
from tpatcher.service.traffic import Traffic
from tpatcher.service.watch import Said, Watch
from tpatcher.store import Fix, Store

T = TypeVar("T")


@dataclass(frozen=True)
class Moment:
    """What is live between two changes."""

    head: int
    ids: tuple[int, ...]  # the fixes' numbers in the store, in the order of the model's patches
    model: Model
    watch: Watch

    @classmethod
    def of(cls, head: int, ids: Sequence[int], model: Model) -> "Moment":
        return cls(head, tuple(ids), model, Watch(model))


@dataclass(frozen=True)
class Made:
    """A fix that went live, or would have (`id` None: a dry run)."""

    id: int | None
    certificate: dict[str, Any]
    verdict: Verdict
    repeated: bool = False  # the same request had been done before


class Desk:
    """The live model, its store, its editor and its guard."""

    def __init__(
        self, model: Model, editor: Editor, store: Store, guard: Guard, traffic: Traffic,
        pending: int = 16,
    ) -> None:  # fmt: skip
        self.editor, self.store, self.guard, self.traffic = editor, store, guard, traffic
        self.base = model
        self.now = Moment.of(0, (), model.twin())
        self.slots, self.pending = threading.BoundedSemaphore(pending), pending
        self.writer = ThreadPoolExecutor(1, "writer", initializer=one_core)
        threads = torch.get_num_threads()
        self.write(self.sync).result()
        torch.set_num_threads(threads)  # the writer has set its own, and with it the default

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
        head, now = self.store.head, self.now
        if head == now.head:
            return False
        ids = self.store.live_ids(head) if head else []
        known = dict(zip(now.ids, now.model.patches, strict=True))
        new = [i for i in ids if i not in known]
        known |= dict(zip(new, self.store.patches(new), strict=True))
        model = self.base.twin()
        # not `wear`, which looks the layer up for each patch: seconds with 10,000 of them, and a
        # store holds the patches of this very base only
        model._wear(tuple(known[i] for i in ids))
        self.now = Moment.of(head, ids, model)
        return True

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
            if key is not None and (past := self.store.keyed(who, key)):
                return repeated(past, example, key)
            now = self.now
            after = now.model.twin()
            patch = self.editor.edit(after, example, supersede=supersede)
            after.push(patch)
            verdict = self.guard.check(now.model, now.ids, after, patch, example)
            if verdict.refuses and not dry_run:
                raise Refused("the guard refuses: " + "; ".join(verdict.reasons), verdict)
            if dry_run:
                return Made(None, dict(patch.report), verdict)
            try:
                id = self._keep(patch, now.head, who, key, verdict)
            except HeadMoved:  # another replica was first: edit and guard once more, on top of it
                continue
            self.now = Moment.of(id, (*now.ids, id), after)
            return Made(id, dict(patch.report), verdict)
        raise Busy("other replicas keep changing the store", after=2)

    def _keep(
        self, patch: Patch, head: int, who: str, key: str | None, verdict: Verdict
    ) -> int:  # fmt: skip
        report = {"certificate": dict(patch.report), "guard": verdict.to_json()}
        return self.store.append(
            patch, parent=head, who=who, key=key, report=report, settings=settings(self.editor)
        )

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
            except HeadMoved:
                continue
            by_patch = dict(zip((p.id for p in now.model.patches), now.ids, strict=True))
            self.now = Moment.of(head, [i for i in now.ids if i != id], after)
            return [by_patch[p.id] for p in lost]
        raise Busy("other replicas keep changing the store", after=2)

    def rollback(self, to: int, who: str = "") -> Moment:
        """Wear what was live after entry `to` of the log."""
        self.store.rollback(to, who=who)
        self.sync()
        return self.now


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
