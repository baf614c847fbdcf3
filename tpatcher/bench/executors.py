"""Where jobs run: in this process, in others of this machine, or on a Ray cluster."""

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from tpatcher import files
from tpatcher.bench.context import Context
from tpatcher.bench.job import SCORES, Work
from tpatcher.bench.run import run
from tpatcher.data import SkippedLines
from tpatcher.errors import BadInput

Files = dict[str, bytes]


class WorkerDied(Exception):
    """The process that ran a job is gone; the job itself may be fine."""


class Worker:
    """Does one piece of work after another, and keeps the model and data of the newest one."""

    def __init__(self, out: Path, threads: int | None = None) -> None:
        self.out = out
        self.context: Context | None = None
        logging.disable_progress_bar()
        if threads is not None:
            torch.set_num_threads(threads)

    def attempt(self, work: Work) -> Files | str:
        """Run a job or a fit. Returns the files that it made, or what went wrong."""
        try:
            return self._perform(work)
        except Exception as error:  # not every exception can be sent to another process
            where = work.folder(self.out) / "error.txt"
            with suppress(OSError):
                where.parent.mkdir(parents=True, exist_ok=True)
                where.write_text(traceback.format_exc())
            return f"{type(error).__name__}: {error}"

    def _perform(self, work: Work) -> Files:
        folder, kept = work.folder(self.out), self.out / "kept"
        folder.mkdir(parents=True, exist_ok=True)
        kept.mkdir(parents=True, exist_ok=True)
        if self.context is None or self.context.job != work.job.context:
            self.context = None  # its model goes before the next one comes
            with warnings.catch_warnings():  # bad rows were named before any job began
                warnings.simplefilter("ignore", SkippedLines)
                self.context = Context.open(work.job, kept)
        editor = self.context.fitted(work.job)
        if work.only_fit:
            files.write_atomic(folder / "fitted", b"")
            return {"fitted": b""}
        run(work.job, self.context, editor, folder)
        for patch in (folder / "patches").glob("*"):  # all that tables need of them is measured
            patch.unlink()
        return {name: (folder / name).read_bytes() for name in (SCORES, "steps.jsonl")}


class Inline(Worker, Executor):
    """One job after another, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Remote(ThreadPoolExecutor):
    """Threads that each have a worker in a process of its own; a dead worker is replaced."""

    def __init__(self, slots: int, start: "Callable[[], Process | Actor]") -> None:
        super().__init__(slots)
        self.start, self.mine = start, threading.local()
        self.alive: list[Process | Actor] = []
        self.ended = False

    def attempt(self, work: Work) -> Files | str:
        """Let the worker of this thread do it; `WorkerDied` if its process is gone."""
        if not hasattr(self.mine, "worker"):
            self.mine.worker = self.start()
            self.alive.append(self.mine.worker)
        try:
            return self.mine.worker.attempt(work)  # type: ignore[no-any-return]
        except WorkerDied as error:
            if self.ended:
                raise RuntimeError("all jobs were stopped") from error
            self.alive.remove(self.mine.worker)
            self.mine.worker.kill()
            del self.mine.worker
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill what still runs: a job goes on from its last step when it is started again."""
        self.ended = True
        for worker in self.alive:
            worker.kill()
        super().shutdown(wait, cancel_futures=True)


class Process:
    """A Worker in another process of this machine."""

    def __init__(self, out: Path, threads: int) -> None:
        self.out, self.threads = out, threads
        ignore = (signal.SIGINT, signal.SIG_IGN)  # whoever began a process ends it
        self.pool = ProcessPoolExecutor(1, get_context("spawn"), signal.signal, ignore)
        self.pid: int = self._call(os.getpid)

    def attempt(self, work: Work) -> Files | str:
        return self._call(_attempt, self.out, self.threads, work)  # type: ignore[no-any-return]

    def _call(self, fn: Callable[..., Any], *args: Any) -> Any:
        try:
            return self.pool.submit(fn, *args).result()
        except BrokenProcessPool as error:
            raise WorkerDied("the process of a worker died") from error

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.pool.shutdown()


_worker = cache(Worker)  # one in each process


def _attempt(out: Path, threads: int, work: Work) -> Files | str:
    return _worker(out, threads).attempt(work)


class Actor:
    """A Worker on a Ray cluster."""

    def __init__(self, ray: Any, out: Path, threads: int) -> None:
        self.ray = ray
        # a job is retried by whoever waits for its result, the same way as anywhere else
        self.actor = ray.remote(num_cpus=1, max_restarts=0)(Worker).remote(out, threads)

    def attempt(self, work: Work) -> Files | str:
        try:
            return self.ray.get(self.actor.attempt.remote(work))  # type: ignore[no-any-return]
        except self.ray.exceptions.RayError as error:
            raise WorkerDied(str(error).splitlines()[0]) from error

    def kill(self) -> None:
        self.ray.kill(self.actor)


def executor_for(name: str, workers: int | None, out: Path) -> Inline | Remote:
    """The executor of this name; "here" with one worker is this process."""
    cpus = os.cpu_count() or 1
    if name == "ray" or name.startswith("ray://"):
        ray = _cluster(name, workers or cpus)
        slots = workers or int(ray.cluster_resources().get("CPU", 1))
        threads = max(1, cpus // slots) if name == "ray" else 1
        return Remote(slots, lambda: Actor(ray, out.absolute(), threads))
    if name != "here":
        raise BadInput(f"unknown place {name!r} to run jobs: give here, ray or ray://HOST:PORT")
    if workers is None or workers == 1:
        return Inline(out)
    return Remote(workers, lambda: Process(out, max(1, cpus // workers)))


def _cluster(address: str, cpus: int) -> Any:
    """Ray on the cluster at this address; "ray" is one begun here, which ends with this process."""
    try:
        import ray
    except ImportError as error:
        raise BadInput("a Ray cluster needs Ray: pip install 'tpatcher[ray]'") from error
    here = {"num_cpus": cpus, "include_dashboard": False}
    where = here if address == "ray" else {"address": address}
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="error", **where)
    return ray
