"""Runs jobs in order, as far as their needs allow, and starts again those whose worker died."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Protocol

from tpatcher import files
from tpatcher.bench.executors import Files, JobExecutor, Work, Worker, WorkerDied
from tpatcher.bench.table import Planned

TRIES = 3  # that a job gets if the process that runs it dies


class Listener(Protocol):
    """Is told how the work goes on."""

    def begun(self, work: Work) -> None: ...

    def over(self, work: Work, error: str | None, again: bool) -> None: ...


def works(plan: Iterable[Planned]) -> list[Work]:
    """Each job of a plan once, and before it the fit that it waits for."""
    out: dict[str, Work] = {}
    for job in (job for planned in plan for jobs in planned.jobs.values() for job in jobs):
        needs = job.fit_key
        if needs is not None:
            out.setdefault(needs, Work(needs, job, only_fit=True))
        out.setdefault(job.key, Work(job.key, job, needs=needs))
    return list(out.values())


def run(
    todo: Sequence[Work], executor: JobExecutor, out: Path, listener: Listener
) -> dict[str, str]:
    """Do all that is missing. Returns what failed, by its key, and why."""
    waiting = [w for w in todo if not w.done(out)]
    unfitted = {w.key for w in waiting if w.only_fit}
    running: dict[Future[Any], Work] = {}
    tries: Counter[str] = Counter()
    failed: dict[str, str] = {}
    with executor:
        while waiting or running:
            ready = [w for w in waiting if w.needs not in unfitted]
            for work in ready[: executor.slots - len(running)]:
                waiting.remove(work)
                listener.begun(work)
                running[executor.submit(Worker.attempt, work)] = work
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                work = running.pop(future)
                tries[work.key] += 1
                made, error, died = _outcome(future)
                again = died and tries[work.key] < TRIES
                if again:
                    waiting.insert(0, work)
                else:
                    unfitted.discard(work.key)
                    _save_files(work, out, made)
                if error and not again:
                    stuck = [w for w in waiting if w.needs == work.key]
                    waiting = [w for w in waiting if w not in stuck]
                    failed |= {work.key: error} | {w.key: f"{work.key} failed" for w in stuck}
                listener.over(work, error, again)
    return failed


def _outcome(future: Future[Any]) -> tuple[Files, str | None, bool]:
    """The files that were made, what went wrong, and whether it was only the worker that died."""
    try:
        result = future.result()
    except WorkerDied as error:
        return {}, str(error), True
    return ({}, result, False) if isinstance(result, str) else (result, None, False)


def _save_files(work: Work, out: Path, made: Files) -> None:
    """Write down what came from a machine that does not share this disk."""
    folder = work.folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        if not (folder / name).exists():
            files.write_atomic(folder / name, content)
