"""`tpatcher sme`: one editor on a stream or on folders, one after another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tpatcher import files, sme
from tpatcher.bench import job as jobs
from tpatcher.bench.job import SCORES, Job
from tpatcher.errors import BadInput


def run(
    job: Job, out: Path, console: Console, device: str | None = None, only: int | None = None
) -> dict[str, Any]:
    """Run every folder of a job, or only one; the numbers of all, also kept in out/scores.json."""
    numbers = range(max(1, job.folders))
    if only is not None and only not in numbers:
        raise BadInput(f"folder {only} asked for, but there are {job.folders}, counted from 0")
    results, found = [], []
    on = jobs.ground(job, device)
    jobs.fit(job, out.parent, device, progress=True)  # once, before the bars
    on.retain(out.parent, progress=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console,
    ) as progress:  # fmt: skip
        for i in numbers if only is None else [only]:
            one = replace(job, folder=i)
            size = len(on.stream(one))
            bar = progress.add_task(f"{job.editor} {i + 1}/{len(numbers)}", total=size)

            def tell(step: sme.Step, bar: Any = bar) -> None:
                progress.update(bar, completed=step.index + 1)

            results.append(jobs.run(one, out / str(i), out.parent, device, tell))
            progress.update(bar, completed=size)
            found.append(sme.read(out / str(i))[1])
    about = {k: v for k, v in job.to_json().items() if k != "folder"}
    many = job.folders and only is None
    scores = sme.summary(found) if many else results[0]["scores"]
    result = {"job": about, "f0": results[0]["f0"], "scores": scores}
    files.replace(out / SCORES, json.dumps(result, indent=1).encode())
    return result
