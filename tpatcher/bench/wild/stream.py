"""One stream of edits on a language model, resumable, and what is measured along it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tpatcher import files, sme
from tpatcher.bench.wild.asking import ask, sample
from tpatcher.bench.wild.drift import documentation, drift, general_prompts, long
from tpatcher.editors import Editor, TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets.causal import Causal

MEASURES, SAID = "measures.json", "said.json"


@dataclass(frozen=True)
class Plan:
    """How long a stream is, and what is asked when."""

    edits: int = 1000
    every: int = 100  # edits between two measurements
    asked: int | None = 100  # edits that are asked about on the way; at the end, all are
    asked_at_end: int | None = None


def run(
    model: Model,
    editor: Editor,
    examples: Sequence[Example],
    plan: Plan,
    out: Path,
    held_out: Sequence[str] = (),
    report: Callable[[dict[str, Any]], None] = lambda row: None,
    update: Callable[..., None] = lambda *, completed: None,
) -> list[dict[str, Any]]:
    """Edit the model at each mistake, up to `plan.edits`. Returns the measurements along the way.

    What was edited and measured is kept in `out`; a run that was killed goes on from there, and
    one with more edits goes on where a shorter one ended. `update` hears how many were made.
    """
    if not isinstance(model.task, Causal):
        raise BadInput(f"{model.name} is no language model: WILD edits models that complete texts")
    kept = out / MEASURES
    rows: list[dict[str, Any]] = json.loads(kept.read_bytes()) if kept.exists() else []
    bare = [replace(e, rephrasings=(), unrelated=()) for e in examples]  # asked later
    contrast, texts = Phrases([e.text for e in examples]), list(held_out) or documentation()
    prompts, said = general_prompts(), list[list[int]]()
    steps: list[sme.Step] = []
    replayed = len(sme.read(out)[1]) if (out / "steps.jsonl").exists() else 0
    stream = sme.run(model, editor, bare, out=out, mistakes=len(bare))
    for step in islice(stream, plan.edits):
        steps.append(step)
        update(completed=len(steps))
        n, last = len(steps), len(steps) == plan.edits
        wanted = last or (plan.every and n % plan.every == 0)
        done = any(row["edits"] == n and row["whole"] == last for row in rows)
        if not wanted or done or n < replayed:  # of an earlier run, which has gone further
            continue
        edits = sample([examples[s.index] for s in steps], None if last else plan.asked)
        if last:
            edits = sample(edits, plan.asked_at_end)
        row = {"edits": n, "whole": last, "asked": len(edits), **_costs(steps, model)}
        said = said or _said(model, prompts, out / SAID)
        row |= asdict(ask(model, edits, contrast)) | asdict(drift(model, texts, prompts, said))
        rows = [*rows, row]
        files.write_atomic(kept, json.dumps(rows, indent=1).encode())
        report(row)
    return rows


def _said(model: Model, prompts: Sequence[str], kept: Path) -> list[list[int]]:
    """What the model says to prompts before any edit, which a resumed run need not ask again."""
    if not kept.exists():
        files.write_atomic(kept, json.dumps(long(model.unpatched(), prompts)).encode())
    said: list[list[int]] = json.loads(kept.read_bytes())
    return said


def fitted(model: Model, editor: Editor, texts: Sequence[str], out: Path) -> Editor:
    """The editor fitted to ordinary texts; T-Patcher's memory is kept in `out`."""
    if not isinstance(editor, TPatcher):
        return editor.fit(model, texts)
    items = editor.solver.items(texts)
    reads = editor.solver.reads
    where = out / f"memory-{reads}"
    background = editor.solver.background
    memory = Memory.cached(where, model, items, reads=reads, progress=True, background=background)
    return editor.fit(model, memory)


def _costs(steps: Sequence[sme.Step], model: Model) -> dict[str, float]:
    """What edits cost so far: seconds, megabytes of patch, and how many could not be made."""
    size = sum(len(p.to_bytes()) for p in model.patches[-100:])
    return {
        "seconds": fmean(step.seconds for step in steps),
        "megabytes": size / 1e6 / max(1, len(model.patches[-100:])),
        "failed": sum(step.patch is None for step in steps),
    }
