"""The live model: one snapshot that answers, and lanes of changes that replace it.

Answers read one reference, `LiveModel.now`. A change prepares the next snapshot on a twin and
then assigns it, so an answer comes from before a change or from after it, never from between.
Edits take long and have a lane of their own: undo, rollback and what other processes did never
wait behind them. Whatever was made for a head that is no longer the newest is made again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tpatcher.checkpoints.handover import move_reports
from tpatcher.editors import Editor, deadline
from tpatcher.errors import BadInput, Busy, NotFound, Refused, StaleHead, StoreMoved, TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.base import Patch
from tpatcher.service.answering import Reply, TracedModel
from tpatcher.service.guard import Guard, Rules, Verdict
from tpatcher.service.lane import Lane
from tpatcher.service.recent import RecentQuestions
from tpatcher.store.location import Successor, successor
from tpatcher.store.store import Fix, Store

LOG = logging.getLogger("tpatcher.service")
TRIES = 8  # how often a change is made again because another replica was first
RELOAD_AFTER = 10.0  # seconds until a successor that could not be loaded is tried again
T = TypeVar("T")


@dataclass(frozen=True)
class Deployment:
    """A base model with all that belongs to it; a handover to another base replaces it whole."""

    base_model: Model  # without any fix
    editor: Editor
    store: Store
    guard: Guard
    recent: RecentQuestions = field(default_factory=RecentQuestions)

    @classmethod
    def of(
        cls,
        model: Model,
        editor: Editor,
        store: Store,
        canaries: Sequence[Example] = (),
        rules: Rules | None = None,
        binding: Sequence[str] = (),
    ) -> "Deployment":
        """A deployment whose guard knows these canaries and the editor's memory."""
        memory = getattr(editor, "memory", None)
        return cls(model, editor, store, Guard(model, canaries, memory, rules or Rules(), binding))


LoadSuccessor = Callable[[Successor], Deployment]


@dataclass(frozen=True)
class Snapshot:
    """What is live between two changes."""

    deployment: Deployment
    head: int  # the store's newest entry that is applied
    ids: tuple[int, ...]  # the fixes' numbers in the store, in the order of the model's patches
    model: Model
    traced: TracedModel

    damaged: Mapping[int, str] = field(default_factory=dict)  # fixes left out, and why each

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        head: int,
        ids: Sequence[int],
        model: Model,
        damaged: Mapping[int, str] | None = None,
    ) -> "Snapshot":
        """The snapshot of a model that carries the fixes `ids`."""
        return cls(deployment, head, tuple(ids), model, TracedModel(model), damaged or {})

    @classmethod
    def load(cls, deployment: Deployment, head: int, known: dict[int, Patch]) -> "Snapshot":
        """What the store says is live at an entry; the patches in `known` are not read again.

        A fix that cannot be read, or does not fit the model, is left out and named: the others
        are as right as before.
        """
        in_log: dict[int, str] = {}
        ids = deployment.store.live_ids(head, in_log) if head else []
        new = [i for i in ids if i not in known and i not in in_log]
        found, damaged = deployment.store.readable(new)
        damaged |= {i: why for i, why in in_log.items() if i in ids and i not in known}
        patches = {i: (known | found)[i] for i in ids if i not in damaged}
        try:
            return cls._with(deployment, head, patches, damaged)
        except Exception as error:
            LOG.warning("a fix does not fit the model, each is tried by itself: %r", error)
        for i, patch in patches.items():
            try:
                cls._with(deployment, head, {i: patch}, {})
            except Exception as error:
                damaged[i] = f"fix {i} does not fit the model: {error!r}"
        fitting = {i: patch for i, patch in patches.items() if i not in damaged}
        return cls._with(deployment, head, fitting, damaged)

    @classmethod
    def _with(
        cls, deployment: Deployment, head: int, patches: dict[int, Patch], damaged: dict[int, str]
    ) -> "Snapshot":
        model = deployment.base_model.twin()
        model.set_patches(patches.values())
        return cls.of(deployment, head, list(patches), model, damaged)

    @property
    def patches(self) -> dict[int, Patch]:
        """The live patches by their numbers in the store."""
        return dict(zip(self.ids, self.model.patches, strict=True))

    @property
    def problem(self) -> str | None:
        """Which fixes are left out because they are damaged; None if all that is live answers."""
        if not self.damaged:
            return None
        numbers = ", ".join(map(str, self.damaged))
        return (
            f"damaged fixes are left out, undo them: {numbers} ({'; '.join(self.damaged.values())})"
        )

    def fired(self, reply: Reply) -> dict[int, float]:
        """The numbers of the fixes that fired for a reply, and how strongly."""
        return {self.ids[i]: response for i, response in reply.fired.items()}


@dataclass(frozen=True)
class FixResult:
    """A fix that went live, or would have (`id` None: a dry run)."""

    id: int | None
    certificate: dict[str, Any]
    verdict: Verdict
    repeated: bool = False  # an earlier request with the same key had made it


class LiveModel:
    """The snapshot that answers, and the lanes of the changes that replace it."""

    def __init__(
        self,
        deployment: Deployment,
        max_waiting: int = 16,
        load_successor: LoadSuccessor | None = None,
        deadline: float | None = 30.0,
    ) -> None:
        self.now = Snapshot.of(deployment, 0, (), deployment.base_model.twin())
        self.deadline = deadline  # seconds that an edit may take; None: as long as it likes
        self._load_successor = load_successor
        self._not_ready, self._reload_at = "", 0.0  # why a successor was not loaded; next try
        self._syncing, self._switching = threading.Lock(), threading.Lock()
        self._closing = threading.Event()
        self.edits = Lane("edits", max_waiting)
        self.undoings = Lane("undoings", max_waiting)
        self.urgent = Lane("rollbacks", max_waiting)  # and all that admins undo
        try:
            self.undoings.submit(self.sync).result()
        except BaseException:
            self.close()
            raise

    @property
    def base_model(self) -> Model:
        """The model without any fix."""
        return self.now.deployment.base_model

    @property
    def store(self) -> Store:
        """The store of the live fixes."""
        return self.now.deployment.store

    def close(self) -> None:
        """Stop the edit under way, drop the changes that wait, and close the store."""
        self._closing.set()
        self.edits.close()
        self.undoings.close()
        self.urgent.close()
        self.store.close()

    def answer(self, prompts: Sequence[str]) -> list[tuple[Reply, dict[int, float]]]:
        """Replies, each with the numbers of the fixes that fired and how strongly."""
        now = self.now  # read once: the whole batch is answered by one model
        return [(reply, now.fired(reply)) for reply in now.traced.answer(prompts)]

    def sync(self) -> bool:
        """Apply what the store says is live. Returns True if that was a change."""
        with self._syncing:  # so that the lanes do not load the same twice
            now, head = self.now, self.store.head
            if head == now.head:
                return False
            if to := successor(now.deployment.store):
                self._follow_successor(now, to)
            else:
                self._switch(now, Snapshot.load(now.deployment, head, now.patches))
            return True

    def fix(
        self,
        example: Example,
        *,
        who: str = "",
        key: str | None = None,
        dry_run: bool = False,
        supersede: bool = False,
        by_admin: bool = False,
    ) -> FixResult:
        """Edit a twin, ask the guard, store the patch, and only then let it answer."""

        def attempt(now: Snapshot) -> FixResult:
            deployment = now.deployment
            if key is not None and not dry_run and (past := deployment.store.by_key(who, key)):
                return _repeated(past, example, key)
            after = now.model.twin()
            patch = deployment.editor.edit(after, example, supersede=supersede)
            after.push(patch)
            verdict = deployment.guard.check(
                now.model,
                now.ids,
                after,
                patch,
                example,
                deployment.recent.latest(),
                by_admin=by_admin,
            )
            deadline.check()
            if dry_run:
                return FixResult(None, patch.certificate.to_json(), verdict)
            if verdict.refuses:
                raise Refused("the guard refuses: " + "; ".join(verdict.reasons), verdict)
            id = deployment.store.append(
                patch,
                parent=now.head,
                who=who,
                key=key,
                checks={"certificate": patch.certificate.to_json(), "guard": verdict.to_json()},
                settings=deployment.editor.knobs(),
            )
            self._switch(now, Snapshot.of(deployment, id, (*now.ids, id), after, now.damaged))
            return FixResult(id, patch.certificate.to_json(), verdict)

        self.sync()  # may load another base, which is no part of the edit
        with deadline.limit(self.deadline, self._closing):
            return self._change(attempt)

    def undo(self, id: int, who: str = "") -> list[int]:
        """Take one fix off; returns the newer ones that depended on it and no longer hold."""

        def attempt(now: Snapshot) -> list[int]:
            if id in now.damaged:  # it does nothing here, so nothing can depend on it
                head = now.deployment.store.remove(id, parent=now.head, who=who)
                left = {i: why for i, why in now.damaged.items() if i != id}
                self._switch(now, replace(now, head=head, damaged=left))
                return []
            if id not in now.ids:
                raise NotFound(f"fix {id} is not live")
            after = now.model.twin()
            lost = after.remove(now.patches[id].id)
            head = now.deployment.store.remove(id, parent=now.head, who=who)
            rest = [i for i in now.ids if i != id]
            self._switch(now, Snapshot.of(now.deployment, head, rest, after, now.damaged))
            number = {patch.id: i for i, patch in now.patches.items()}
            return [number[patch.id] for patch in lost]

        return self._change(attempt)

    def rollback(self, to: int, who: str = "") -> Snapshot:
        """Go back to what was live after entry `to` of the log."""
        self.sync()
        self.store.rollback(to, who=who)
        self.sync()
        return self.now

    def _change(self, attempt: Callable[[Snapshot], T]) -> T:
        """Make a change for the newest snapshot, and again if another replica was first."""
        for _ in range(TRIES):
            self.sync()
            try:
                return attempt(self.now)
            except StaleHead:
                continue
        raise Busy("other replicas keep changing the store", after=2)

    def _switch(self, before: Snapshot, after: Snapshot) -> None:
        """Let a snapshot answer that was made of `before`, unless a newer one does already."""
        with self._switching:
            now = self.now
            if now.deployment is not before.deployment:
                return
            if after.deployment is not now.deployment or after.head > now.head:
                self.now = after
                for i in after.damaged.keys() - now.damaged.keys():
                    LOG.error("fix %d is damaged and left out: %r", i, after.damaged[i])

    def _follow_successor(self, now: Snapshot, to: Successor) -> None:
        """Switch to the base that the store has moved to; the old one answers until it is ready.

        A base is no small thing to load over and over: after a failure the next try has to wait.
        """
        if self._load_successor is None:
            raise StoreMoved(
                f"this store has moved; start the service with {to.model!r} and {to.store!r}"
            )
        if time.monotonic() < self._reload_at:
            raise StoreMoved(self._not_ready)
        LOG.info("the store has moved: loading %r", to.model)
        old = now.deployment.store
        try:
            deployment = self._load_successor(to)
            self._switch(now, Snapshot.load(deployment, deployment.store.head, {}))
        except Exception as error:  # whatever it is, the old base goes on answering
            why = error if isinstance(error, TPatcherError) else repr(error)
            self._not_ready = f"this store has moved to {to.model!r}, which is not ready: {why}"
            self._reload_at = time.monotonic() + RELOAD_AFTER
            raise StoreMoved(self._not_ready) from error
        LOG.info("switched to %r with %d fixes", to.model, len(self.now.ids))
        move_reports(old, deployment.store)  # reports that came in since the move was written
        old.close()


def _repeated(past: Fix, example: Example, key: str) -> FixResult:
    """The result of an earlier request with the same key, which is for one request only."""
    if past.example != example:
        raise BadInput(f"Idempotency-Key {key!r} was used for another fix, number {past.id}")
    verdict = Verdict(**past.checks["guard"])
    return FixResult(past.id, past.checks["certificate"], verdict, repeated=True)
