"""Runs jobs in order, fits first, and starts again those whose worker died."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from tpatcher import files
from tpatcher.bench.executors import Inline, Remote, WorkerDied
from tpatcher.bench.job import Work
from tpatcher.bench.progress import JobBars
from tpatcher.bench.table import Planned

TRIES = 3  # that a job gets if the process that runs it dies


def works(plan: Iterable[Planned]) -> list[Work]:
    """Each fit that jobs of a plan wait for, and then each of its jobs, once."""
    every = [job for planned in plan for jobs in planned.jobs.values() for job in jobs]
    fits = {key: Work(key, job, only_fit=True) for job in every if (key := job.fit_key)}
    jobs = {job.key: Work(job.key, job, needs=job.fit_key) for job in every}
    return [*fits.values(), *jobs.values()]


def missing(todo: Iterable[Work], out: Path) -> list[Work]:
    """What is not complete, but for fits that no job waits for any more."""
    todo = list(todo)
    done = {work.key: work.done(out) for work in todo}
    needed = {work.needs: False for work in todo if work.needs}
    needed |= {work.needs: True for work in todo if work.needs and not done[work.key]}
    return [work for work in todo if not done[work.key] and needed.get(work.key, True)]


def run(
    todo: Sequence[Work], executor: Inline | Remote, out: Path, bars: JobBars
) -> dict[str, str]:
    """Do all that is missing, fits before their jobs. Returns what failed, by its key, and why."""
    errors: dict[str, Future[str | None]] = {}

    def do(work: Work) -> str | None:
        fit = errors.get(work.needs or "")  # was begun before the jobs that wait for it here
        no_fit = f"{work.needs} failed" if fit and fit.result() else None
        try:
            error = no_fit or _attempts(work, executor, out, bars)
        except OSError as failure:  # a full disk may have room for the next
            error = f"its results cannot be kept: {failure}"
        bars.over(work, error)
        return error

    with executor:
        for work in missing(todo, out):
            errors[work.key] = executor.submit(do, work)
        return {key: error for key, future in errors.items() if (error := future.result())}


def _attempts(work: Work, executor: Inline | Remote, out: Path, bars: JobBars) -> str | None:
    """Do a piece of work, again if its worker dies. Returns what went wrong."""
    for _ in range(TRIES):
        try:
            with bars.running(work):
                made = executor.attempt(work)
        except WorkerDied as death:
            error = str(death)
            bars.tell(work, error)
            continue
        if isinstance(made, str):
            return made
        folder = work.folder(out)  # its worker may run on a machine that does not share this disk
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            if not (folder / name).exists():
                files.write_atomic(folder / name, content)
        return None
    return f"{error}, {TRIES} times"
