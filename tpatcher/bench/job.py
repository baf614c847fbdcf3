"""One job of the benchmark: an editor on the mistakes of one model, in one stream or in folders."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tpatcher import pack, sme
from tpatcher.answers import Paths
from tpatcher.data import dataset
from tpatcher.editors import EDITORS, TPatcher
from tpatcher.errors import BadInput
from tpatcher.memory import Memory
from tpatcher.models import Model, load


@dataclass(frozen=True)
class Job:
    """Everything that decides a result."""

    model: str
    data: str
    editor: str = "t-patcher"
    fields: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    without: Path | None = None
    folders: int = 0
    most: int | None = None
    tr: int = 10_000
    memory: int = 40_000
    every: int | None = None
    given: int = 0
    seed: int = 0
    skip_bad: bool = False


def run(job: Job, out: Path, console: Console, device: str | None = None) -> dict[str, Any]:
    """Run what is missing of a job; its numbers, which are also kept in out/scores.json."""
    if job.editor not in EDITORS:
        raise BadInput(f"Unknown editor {job.editor!r}. Available: {', '.join(EDITORS)}")
    base = load(job.model, device=device)
    options: dict[str, Any] = {"without": job.without} if job.without else {}
    if job.skip_bad:
        options["skip_bad"] = True
    split = dataset(job.data, job.path, **options)
    d_tr, memory = split.retained(tr=job.tr, memory=job.memory, seed=job.seed)
    test = list(split.test)
    Random(job.seed).shuffle(test)
    streams = split.folders(job.folders, job.seed) if job.folders else [list(split.edit)]
    if not job.folders:
        Random(job.seed).shuffle(streams[0])
    streams = [stream[: job.most] for stream in streams]
    retain = {"train": Paths(base, d_tr), "test": Paths(base, test[: job.tr])}
    editor = EDITORS[job.editor](**job.fields)
    if isinstance(editor, TPatcher):
        editor.fit(base, _memory(base, editor, memory, out.parent))
    else:
        editor.fit(base, memory)
    found = []
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console,
    ) as progress:  # fmt: skip
        for i, stream in enumerate(streams):
            bar = progress.add_task(f"{job.editor} {i + 1}/{len(streams)}", total=len(stream))
            steps = []
            for step in sme.run(
                base.twin(), editor, stream, retain, job.every, out / str(i), job.given
            ):
                steps.append(step)
                progress.update(bar, completed=step.index + 1)
            progress.update(bar, completed=len(stream))
            found.append(steps)
    header, _ = sme.read(out / "0")
    whole = sme.score(found[0], header["N"]).to_json()
    result = whole if not job.folders else sme.summary(found)
    counts = {
        "memory": len(memory),
        "train": _accuracy(retain["train"]),
        "test": _accuracy(retain["test"]),
    }
    result = {"job": {k: str(v) if isinstance(v, Path) else v for k, v in job.__dict__.items()},
              "f0": counts, "scores": result}  # fmt: skip
    pack.replace(out / "scores.json", json.dumps(result, indent=1).encode())
    return result


def _memory(model: Model, editor: TPatcher, examples: Any, beside: Path) -> Memory:
    """The memory of queries, kept beside the runs for other jobs on the same model and traffic."""
    own = editor.preset == "fast"
    said = "\n".join(f"{e.text}\t{'' if own else e.answer}" for e in examples)
    about = f"{model.base.fingerprint} {editor.layer} {said}"
    kept = beside / f"memory-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    if (kept / "memory.json").exists():
        return Memory.load(kept)
    items = [e.text for e in examples] if own else examples
    memory = Memory.collect(model, items, layer=editor.layer, progress=True)
    memory.save(kept)
    return memory


def _accuracy(paths: Paths) -> dict[str, float]:
    return {
        "examples": len(paths.base),
        "right": round(sum(paths.base) / max(1, len(paths.base)), 4),
    }
