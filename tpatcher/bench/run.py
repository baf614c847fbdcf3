"""Running a job: sequential model editing on its stream, and the numbers of that."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from tpatcher import files, sme
from tpatcher.bench import activations
from tpatcher.bench.context import Context
from tpatcher.bench.job import SCORES, Job
from tpatcher.bench.progress import Bars
from tpatcher.editors import Editor
from tpatcher.errors import BadInput
from tpatcher.models.model import Model
from tpatcher.patches.codebook import Codebook


def run(
    job: Job,
    context: Context,
    editor: Editor,
    out: Path,
    update: Callable[..., None] = lambda *, completed, total: None,
) -> dict[str, Any]:
    """Run what is missing of a job. Returns its numbers, which are also kept in out/scores.json.

    `update` hears how many examples of the stream the model has seen, and of how many.
    """
    if (out / SCORES).exists():
        kept: dict[str, Any] = json.loads((out / SCORES).read_bytes())
        if kept["job"] == job.to_json():
            return kept
    began = perf_counter()
    stream, mistakes = context.stream(job)
    retained, model = context.retained, context.model.twin()
    steps = []
    for step in sme.run(
        model,
        editor,
        stream,
        retained,
        job.measure_every,
        out,
        job.shown_rephrasings,
        mistakes,
        remember=job.remember,
    ):
        steps.append(step)
        update(completed=step.index + 1, total=len(stream))
    update(completed=len(stream), total=len(stream))
    f0: dict[str, Any] = {"memory": len(context.memory) + len(context.traffic)}
    for name, cache in retained.items():
        right, n = sum(cache.right_before), len(cache.examples)
        f0[name] = {"examples": n, "right": round(right / max(1, n), 4)}
    tested = zip(retained["test"].examples, retained["test"].right_before, strict=True)
    wrong = [example for example, right_before in tested if not right_before]
    result = {
        "job": job.to_json(),
        "f0": f0,
        "scores": asdict(sme.score(steps, mistakes)),
        "bytes_per_edit": _bytes_per_edit(model),
        "activations": activations.measure(model, wrong[:100]),
        "seconds": round(perf_counter() - began, 1),
    }
    files.write_atomic(out / SCORES, json.dumps(result, indent=1).encode())
    return result


def run_folders(
    job: Job, context: Context, out: Path, console: Console, folder: int | None = None
) -> dict[str, Any]:
    """Run all folders of a job, or one. Returns their numbers, also kept in out/scores.json."""
    count = max(1, job.folders)
    if folder is not None and folder not in range(count):
        raise BadInput(f"folder {folder} asked for, but there are {job.folders}, counted from 0")
    editor = context.fitted(job)
    results, runs = [], []
    with Bars(console) as progress:
        for i in range(count) if folder is None else [folder]:
            bar = progress.add_task(f"{job.editor} {i + 1}/{count}", total=None)
            update = partial(progress.update, bar)
            results.append(run(replace(job, folder=i), context, editor, out / str(i), update))
            runs.append(sme.read(out / str(i))[1])
    about = {k: v for k, v in job.to_json().items() if k != "folder"}
    many = job.folders and folder is None
    scores = sme.summary(runs) if many else results[0]["scores"]
    result = {"job": about, "f0": results[0]["f0"], "scores": scores}
    files.write_atomic(out / SCORES, json.dumps(result, indent=1).encode())
    return result


def _bytes_per_edit(model: Model) -> float:
    """What an edit leaves behind; a codebook holds all edits before it too."""
    sizes = [sum(t.nbytes for t in p.tensors.values()) for p in model.patches]
    if any(isinstance(p, Codebook) for p in model.patches):
        sizes = sizes[-1:] + [0] * (len(sizes) - 1)
    return sum(sizes) / max(1, len(sizes))
