"""How long jobs will take: each kind of work measured here by a few steps, times how many it has.

Fits: a few training steps, or the queries of a few memory examples. Jobs: the edit of one mistake
with an editor that has been fitted to a few examples, and a few answers. The paper's solver is
measured by ten of its steps on a memory of the job's size; it takes 125 or more.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from tpatcher.bench.context import Context
from tpatcher.bench.job import Job, Work
from tpatcher.editors import Editor, TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.editors.trained.base import Trained
from tpatcher.errors import TPatcherError
from tpatcher.example import Example
from tpatcher.patches.base import Patch
from tpatcher.patches.weights import Weights

FEW = 64  # examples that are answered, or collected, to see how long one takes
STEPS, PAPER_STEPS = 4, 10  # that are timed
LEAST_PAPER_STEPS = 125  # the first check at 100, the next one after 25 more


def estimate(todo: Sequence[Work], device: str | None = None) -> dict[str, float]:
    """Seconds that each piece of work will take, by its key."""
    found: dict[str, float] = {}
    sample: Sample | None = None
    with TemporaryDirectory() as kept:
        for work in sorted(todo, key=lambda work: work.job.context.key):  # a model after another
            few = replace(work.job.context, n_train=8, n_test=8, memory_size=4 * FEW)
            if sample is None or sample.context.job != few:
                sample = None  # its model goes before the next one comes
                sample = Sample(Context.open(few, Path(kept), device))
            found[work.key] = sample.fit(work.job) if work.only_fit else sample.run(work.job)
    return found


class Sample:
    """A model with a few of its data, and what was measured on them."""

    def __init__(self, context: Context) -> None:
        self.context, self.model = context, context.model
        self.edits: dict[str, tuple[float, Patch | None]] = {}  # by editor and fields

    @cached_property
    def mistake(self) -> Example | None:
        """The first mistake of f0."""
        stream, mistakes = self.context.stream(replace(self.context.job, edits=1))
        return stream[-1] if mistakes else None

    @cached_property
    def share_wrong(self) -> float:
        """The share of the edit set that f0 gets wrong."""
        some = list(self.context.split.edit)[:FEW]
        return self.model.correct(some).count(False) / max(1, len(some))

    @cached_property
    def answer(self) -> float:
        """Seconds an answer takes."""
        texts = [e.text for e in self.context.memory[:FEW]]
        return _seconds(lambda: self.model.answer(texts)) / max(1, len(texts))

    def fit(self, job: Job) -> float:
        """Seconds that a fit takes: its steps, or its memory examples, times one of them."""
        editor = job.new_editor()
        if isinstance(editor, Trained):
            one, more = (self._training(editor, steps) for steps in (1, 1 + STEPS))
            seconds = max(0.0, more - one) / STEPS * editor.steps
            limit = getattr(editor, "seconds", None)
            return seconds if limit is None else min(seconds, limit)
        if not isinstance(editor, TPatcher):
            return 0.0
        items = editor.solver.items(self.context.memory[:FEW])
        one = _seconds(lambda: Memory.collect(self.model, items, layer=editor.layer)) / len(items)
        return one * job.memory_size

    def run(self, job: Job) -> float:
        """Seconds that a job takes: its edits, and its answers wherever retention is measured."""
        edits = job.edits
        if edits is None:
            edits = round(self.share_wrong * len(self.context.split.edit) / max(1, job.folders))
        edit, patch = self._edit(job)
        times = 1 + (edits // job.measure_every if job.measure_every else 0)
        times = times if isinstance(patch, Weights) else 1  # others are read off cached answers
        n_test = job.n_train if job.n_test is None else job.n_test
        asked = job.n_train + min(n_test, len(self.context.split.test))
        return edits * edit + times * asked * self.answer

    def _training(self, editor: Trained, steps: int) -> float:
        few = _brief(editor, steps)
        return _seconds(lambda: few.fit(self.model, self.context.memory))

    def _edit(self, job: Job) -> tuple[float, Patch | None]:
        """Seconds of an edit, and its patch if it succeeded."""
        key = f"{job.editor} {job.fields} {job.memory_size}"
        if key not in self.edits:
            self.edits[key] = self._time_edit(job, job.new_editor())
        return self.edits[key]

    def _time_edit(self, job: Job, editor: Editor) -> tuple[float, Patch | None]:
        if self.mistake is None:
            return 0.0, None
        times = 1.0
        if isinstance(editor, TPatcher):
            editor = editor.fit(self.model, self.context.memory)
            if isinstance(editor.solver, Paper):
                times = LEAST_PAPER_STEPS / PAPER_STEPS
                editor.solver = replace(editor.solver, steps=PAPER_STEPS)
                editor.memory = _as_large(editor.memory, job.memory_size / (4 * FEW))
        else:
            if isinstance(editor, Trained):
                editor = _brief(editor, 1)
            editor = editor.fit(self.model, self.context.memory)
        made: list[Patch] = []

        def edit() -> None:
            with suppress(TPatcherError):  # an edit that fails has taken its time all the same
                made.append(editor.edit(self.model, self.mistake))  # type: ignore[arg-type]

        return times * _seconds(edit), made[0] if made else None


def _brief(editor: Trained, steps: int) -> Trained:
    """An editor that trains for so many steps, with as little else as can be."""
    known = {f.name for f in fields(editor)}
    few = {name: 2 for name in ("validation",) if name in known}  # edits of a check
    return replace(editor, steps=steps, progress=False, **few)  # type: ignore[arg-type]


def _as_large(memory: Memory | None, times: float) -> Memory | None:
    """A memory of the same queries so many times over."""
    if memory is None or times <= 1:
        return memory
    n = round(times * len(memory))
    again = torch.arange(n, device=memory.queries.device) % len(memory)
    states = None if memory.states is None else memory.states[again]
    return Memory(memory.queries[again], states=states)


def _seconds(run: Any) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began
