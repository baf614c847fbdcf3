"""Where jobs run: here, in processes of this machine, or on a Ray cluster."""

import multiprocessing as mp
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from transformers.utils import logging

from tpatcher import files
from tpatcher.bench import job as jobs
from tpatcher.bench.job import SCORES, Job
from tpatcher.errors import BadInput

TRIES = 3  # that a job gets if whoever runs it dies
KEPT = (SCORES, "steps.jsonl")
Files = dict[str, bytes]


@dataclass(frozen=True)
class Work:
    """A job, or the fit that several jobs wait for."""

    key: str
    job: Job
    kind: str = "qa"  # the task: "fc" or "qa"
    only_fit: bool = False
    needs: str | None = None

    def done(self, out: Path) -> bool:
        return (self.place(out) / ("fitted" if self.only_fit else SCORES)).exists()

    def place(self, out: Path) -> Path:
        return out / ("fits" if self.only_fit else "jobs") / self.key


class Lost(Exception):
    """The process that ran a job is gone; the job itself may be fine."""


def perform(work: Work, out: Path, threads: int | None = None) -> Files:
    """Do one piece of work: the same function wherever it runs; the files that it made."""
    logging.disable_progress_bar()
    if threads is not None:
        torch.set_num_threads(threads)
    beside, here = out / "kept", work.place(out)
    beside.mkdir(parents=True, exist_ok=True)
    here.mkdir(parents=True, exist_ok=True)
    if work.only_fit:
        jobs.fit(work.job, beside)
        files.replace(here / "fitted", b"")
        return {"fitted": b""}
    jobs.run(work.job, here, beside)
    for patch in (here / "patches").glob("*"):  # all that the tables need of them is measured
        patch.unlink()
    return {name: (here / name).read_bytes() for name in KEPT}


class Place(Protocol):
    """Takes so many pieces of work at once, and says which have ended."""

    slots: int

    def start(self, work: Work) -> None: ...

    def ended(self, timeout: float) -> Iterator[tuple[str, Files | Exception]]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...


class Here:
    """One after another, in this process."""

    slots = 1

    def __init__(self, out: Path) -> None:
        self.out, self.next = out, list[Work]()

    def start(self, work: Work) -> None:
        self.next.append(work)

    def ended(self, timeout: float) -> Iterator[tuple[str, Files | Exception]]:
        for work in self.next:
            yield work.key, _tried(work, self.out, None)
        self.next = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Processes:
    """In processes that live on from job to job, each with its share of the threads."""

    def __init__(self, out: Path, workers: int) -> None:
        self.slots, self.out = workers, out
        self.threads = max(1, (os.cpu_count() or 1) // workers)
        self.idle: list[tuple[Any, Connection]] = []
        self.busy: dict[Connection, tuple[Any, Work]] = {}

    def start(self, work: Work) -> None:
        process, pipe = self.idle.pop() if self.idle else self._begun()
        self.busy[pipe] = (process, work)
        pipe.send(work)

    def ended(self, timeout: float) -> Iterator[tuple[str, Files | Exception]]:
        for pipe in wait(list(self.busy), timeout):
            assert isinstance(pipe, Connection)
            process, work = self.busy.pop(pipe)
            try:
                result = pipe.recv()
            except (EOFError, ConnectionError):
                yield work.key, Lost(f"process {process.pid} died")
            else:
                self.idle.append((process, pipe))
                yield work.key, result

    def _begun(self) -> tuple[Any, Connection]:
        context = mp.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.out, self.threads), daemon=True)
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read when the child imports torch
        try:
            process.start()
        finally:
            os.environ.pop("OMP_NUM_THREADS")
            if before is not None:
                os.environ["OMP_NUM_THREADS"] = before
        theirs.close()
        return process, mine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """What still runs is killed: it goes on from its last step when it is started again."""
        all_of = [*self.idle, *((process, pipe) for pipe, (process, _) in self.busy.items())]
        for process, pipe in all_of:
            process.kill()
            process.join()
            process.close()
            pipe.close()


def _serve(pipe: Connection, out: Path, threads: int) -> None:
    """What a worker process does: one piece of work after another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        pipe.send(_tried(work, out, threads))


def _tried(work: Work, out: Path, threads: int | None) -> Files | Exception:
    """The work's files, or what went wrong: one bad job is no reason to stop the others."""
    try:
        return perform(work, out, threads)
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")  # any error, made to be sent


class OnRay:
    """On a Ray cluster: one begun here ("ray"), or the one at an address ("ray://…")."""

    def __init__(self, out: Path, address: str, workers: int | None) -> None:
        try:
            import ray
        except ImportError as error:
            raise BadInput("--on ray needs Ray: pip install 'tpatcher[ray]'") from error
        self.ray, self.out = ray, out.absolute()
        here = os.cpu_count() or 1
        local = {"num_cpus": workers or here, "include_dashboard": False}
        self.mine = not ray.is_initialized()
        if self.mine:
            ray.init(
                log_to_driver=False, logging_level="error",
                **(local if address == "ray" else {"address": address}),
            )  # fmt: skip
        self.slots = workers or int(ray.cluster_resources().get("CPU", 1))
        self.threads = max(1, here // self.slots) if address == "ray" else 1
        # retried by whoever waits for the result, the same way as anywhere else
        self.call = ray.remote(num_cpus=1, max_retries=0)(_tried)
        self.busy: dict[Any, str] = {}

    def start(self, work: Work) -> None:
        self.busy[self.call.remote(work, self.out, self.threads)] = work.key

    def ended(self, timeout: float) -> Iterator[tuple[str, Files | Exception]]:
        found, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=timeout)
        for one in found:
            key = self.busy.pop(one)
            try:
                yield key, self.ray.get(one)
            except self.ray.exceptions.RayError as error:
                yield key, Lost(str(error).splitlines()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        for one in self.busy:
            self.ray.cancel(one, force=True)
        if self.mine:
            self.ray.shutdown()


class Watch(Protocol):
    """Told how the whole goes on."""

    def begun(self, work: Work) -> None: ...

    def over(self, work: Work, error: Exception | None, again: bool) -> None: ...


def run(works: Sequence[Work], place: Place, out: Path, watch: Watch) -> dict[str, str]:
    """Do all that is missing, in order as far as slots and needs allow; what failed, and why."""
    waiting = [w for w in works if not w.done(out)]
    open_needs = {w.key for w in waiting if w.only_fit}
    tries: dict[str, int] = {}
    running: dict[str, Work] = {}
    failed: dict[str, str] = {}
    with place:
        while waiting or running:
            for work in [w for w in waiting if w.needs not in open_needs]:
                if len(running) < place.slots:
                    waiting.remove(work)
                    running[work.key] = work
                    place.start(work)
                    watch.begun(work)
            for key, result in place.ended(timeout=0.5):
                work = running.pop(key)
                tries[key] = tries.get(key, 0) + 1
                again = isinstance(result, Lost) and tries[key] < TRIES
                if again:
                    waiting.insert(0, work)
                elif isinstance(result, Exception):
                    failed[key] = str(result)
                    stuck = [w for w in waiting if w.needs == key]
                    failed |= {w.key: f"{key} failed" for w in stuck}
                    waiting = [w for w in waiting if w not in stuck]
                    open_needs.discard(key)
                else:
                    _arrived(work, out, result)
                    open_needs.discard(key)
                watch.over(work, result if isinstance(result, Exception) else None, again)
    return failed


def _arrived(work: Work, out: Path, made: Files) -> None:
    """Write down what came from a machine that does not share this disk."""
    here = work.place(out)
    here.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        if not (here / name).exists():
            files.replace(here / name, content)
