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
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from tpatcher import files
from tpatcher.bench.context import Context
from tpatcher.bench.job import SCORES, Work
from tpatcher.bench.placement import devices, on_gpu
from tpatcher.bench.run import run
from tpatcher.data import SkippedLines
from tpatcher.errors import BadInput, unknown

Files = dict[str, bytes]


class WorkerDied(Exception):
    """The process that ran a job is gone; the job itself may be fine."""


class Worker:
    """Does one piece of work after another, and keeps the model and data of the newest one."""

    def __init__(self, out: Path, threads: int | None = None, device: str | None = None) -> None:
        self.out, self.device = out, device
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
                self.context = Context.open(work.job, kept, self.device)
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

    def __init__(self, slots: int, start: "Callable[[int], Process | Actor]") -> None:
        """`start` begins the worker of a slot, counted from 0, and another if that one dies."""
        super().__init__(slots)
        self.start, self.mine, self.slot = start, threading.local(), count()
        self.alive: list[Process | Actor] = []
        self.ended = False

    def attempt(self, work: Work) -> Files | str:
        """Let the worker of this thread do it; `WorkerDied` if its process is gone."""
        if not hasattr(self.mine, "slot"):
            self.mine.slot = next(self.slot)
        if not hasattr(self.mine, "worker"):
            self.mine.worker = self.start(self.mine.slot)
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

    def __init__(self, out: Path, threads: int, device: str | None = None) -> None:
        self.out, self.threads, self.device = out, threads, device
        ignore = (signal.SIGINT, signal.SIG_IGN)  # whoever began a process ends it
        self.pool = ProcessPoolExecutor(1, get_context("spawn"), signal.signal, ignore)
        self.pid: int = self._call(os.getpid)

    def attempt(self, work: Work) -> Files | str:
        settings = (self.out, self.threads, self.device)
        return self._call(_attempt, settings, work)  # type: ignore[no-any-return]

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


def _attempt(settings: tuple[Path, int, str | None], work: Work) -> Files | str:
    return _worker(*settings).attempt(work)


class Actor:
    """A Worker on a Ray cluster."""

    def __init__(self, ray: Any, out: Path, threads: int, device: str | None = None) -> None:
        self.ray = ray
        # Ray shows a worker no other GPU than its own
        needs = {"num_cpus": 1, "num_gpus": int(on_gpu(device))}
        # a job is retried by whoever waits for its result, the same way as anywhere else
        begin = ray.remote(**needs, max_restarts=0)(Worker).remote
        self.actor = begin(out, threads, device)

    def attempt(self, work: Work) -> Files | str:
        try:
            return self.ray.get(self.actor.attempt.remote(work))  # type: ignore[no-any-return]
        except self.ray.exceptions.RayError as error:
            raise WorkerDied(str(error).splitlines()[0]) from error

    def kill(self) -> None:
        self.ray.kill(self.actor)


def executor_for(
    name: str, workers: int | None, out: Path, device: str | None = None
) -> Inline | Remote:
    """The executor of this name; "here" with one worker is this process."""
    cpus = os.cpu_count() or 1
    if name == "ray" or name.startswith("ray://"):
        ray = _cluster(name, workers or cpus)
        slots = workers or _slots(ray.cluster_resources(), device)
        threads = max(1, cpus // slots) if name == "ray" else 1
        return Remote(slots, lambda _: Actor(ray, out.absolute(), threads, device))
    if name != "here":
        raise unknown("place to run jobs", name, ("here", "ray", "ray://HOST:PORT"))
    chosen = devices(device, workers or 1)
    if len(chosen) == 1:
        return Inline(out, device=chosen[0])
    threads = max(1, cpus // len(chosen))
    return Remote(len(chosen), lambda slot: Process(out, threads, chosen[slot]))


def _slots(resources: dict[str, float], device: str | None) -> int:
    """How many workers a Ray cluster has room for: one a GPU if they need one, else one a CPU."""
    kind = "GPU" if on_gpu(device) else "CPU"
    if not (found := int(resources.get(kind, 0))):
        raise BadInput(f"{device or 'cpu'} was asked for, but the Ray cluster has no {kind}")
    return found


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
