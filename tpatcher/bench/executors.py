"""Where jobs run: in this process, in others of this machine, or on a Ray cluster."""

import os
import signal
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers.utils import logging

from tpatcher import files
from tpatcher.bench.context import Context
from tpatcher.bench.job import SCORES, Job
from tpatcher.bench.run import run
from tpatcher.errors import BadInput

Files = dict[str, bytes]


@dataclass(frozen=True)
class Work:
    """A job, or the fit that several jobs wait for."""

    key: str
    job: Job
    only_fit: bool = False
    needs: str | None = None

    def done(self, out: Path) -> bool:
        return (self.folder(out) / ("fitted" if self.only_fit else SCORES)).exists()

    def folder(self, out: Path) -> Path:
        return out / ("fits" if self.only_fit else "jobs") / self.key


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
            return f"{type(error).__name__}: {error}"

    def _perform(self, work: Work) -> Files:
        folder, kept = work.folder(self.out), self.out / "kept"
        folder.mkdir(parents=True, exist_ok=True)
        kept.mkdir(parents=True, exist_ok=True)
        if self.context is None or not self.context.serves(work.job):
            self.context = None  # its model goes before the next one comes
            self.context = Context.open(work.job, kept)
        editor = self.context.fitted(work.job)
        if work.only_fit:
            files.write_atomic(folder / "fitted", b"")
            return {"fitted": b""}
        run(work.job, self.context, editor, folder)
        for patch in (folder / "patches").glob("*"):  # all that tables need of them is measured
            patch.unlink()
        return {name: (folder / name).read_bytes() for name in (SCORES, "steps.jsonl")}


class JobExecutor(Executor):
    """Calls what is submitted with a Worker as its first argument, in `slots` places at once."""

    slots: int

    @abstractmethod
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]: ...


class Inline(JobExecutor):
    """One after another, in this process."""

    slots = 1

    def __init__(self, out: Path) -> None:
        self.worker = Worker(out)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(self.worker, *args, **kwargs))
        return future


class RemoteWorker(Protocol):
    """A Worker in a process of its own."""

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call fn(worker, *args) there; `WorkerDied` if that process is gone."""

    def kill(self) -> None: ...


class Remote(JobExecutor):
    """Workers in processes of their own, begun when they are needed; a dead one is replaced."""

    def __init__(self, slots: int, start: Callable[[], RemoteWorker]) -> None:
        self.slots, self.start = slots, start
        self.workers: list[RemoteWorker] = []
        self.idle: list[RemoteWorker] = []
        self.threads = ThreadPoolExecutor(slots)  # each waits for one worker

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.threads.submit(self._call, fn, *args, **kwargs)

    def _call(self, fn: Callable[..., Any], *args: Any) -> Any:
        try:
            worker = self.idle.pop()
        except IndexError:
            worker = self.start()
            self.workers.append(worker)
        try:
            result = worker.call(fn, *args)
        except WorkerDied:
            self.workers.remove(worker)
            worker.kill()
            raise
        self.idle.append(worker)
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill what still runs: a job goes on from its last step when it is started again."""
        for worker in list(self.workers):
            worker.kill()
        self.threads.shutdown(wait, cancel_futures=True)


class Process:
    """A Worker in another process of this machine."""

    def __init__(self, out: Path, threads: int) -> None:
        context = get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, _begin, (out, threads))
        try:
            self.pid = self.pool.submit(os.getpid).result()
        except BrokenProcessPool as error:
            raise WorkerDied("a process died as it began") from error

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        try:
            return self.pool.submit(_call, fn, *args).result()
        except BrokenProcessPool as error:
            raise WorkerDied(f"process {self.pid} died") from error

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.pool.shutdown()


_here: list[Worker] = []  # the one Worker of a process that `Process` began


def _begin(out: Path, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever began this process ends it
    _here.append(Worker(out, threads))


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(_here[0], *args)


class Actor:
    """A Worker on a Ray cluster."""

    def __init__(self, ray: Any, out: Path, threads: int) -> None:
        self.ray = ray
        # a job is retried by whoever waits for its result, the same way as anywhere else
        self.actor = ray.remote(num_cpus=1, max_restarts=0)(Worker).remote(out, threads)

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        try:
            return self.ray.get(getattr(self.actor, fn.__name__).remote(*args))
        except self.ray.exceptions.RayError as error:
            raise WorkerDied(str(error).splitlines()[0]) from error

    def kill(self) -> None:
        self.ray.kill(self.actor)


class OnRay(Remote):
    """On a Ray cluster: one begun here ("ray"), or the one at an address ("ray://…")."""

    def __init__(self, out: Path, address: str, workers: int | None) -> None:
        try:
            import ray
        except ImportError as error:
            raise BadInput("a Ray cluster needs Ray: pip install 'tpatcher[ray]'") from error
        here = os.cpu_count() or 1
        local = {"num_cpus": workers or here, "include_dashboard": False}
        self.ray, self.began = ray, not ray.is_initialized()
        if self.began:
            where = local if address == "ray" else {"address": address}
            ray.init(log_to_driver=False, logging_level="error", **where)
        slots = workers or int(ray.cluster_resources().get("CPU", 1))
        threads = max(1, here // slots) if address == "ray" else 1
        super().__init__(slots, lambda: Actor(ray, out.absolute(), threads))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        if self.began:
            self.ray.shutdown()


def executor_for(name: str, workers: int | None, out: Path) -> JobExecutor:
    """The executor of this name; "here" with one worker is this process."""
    if name == "here" and workers in (None, 1):
        return Inline(out)
    if name == "here":
        slots = workers or 1
        threads = max(1, (os.cpu_count() or 1) // slots)
        return Remote(slots, lambda: Process(out, threads))
    if name == "ray" or name.startswith("ray://"):
        return OnRay(out, name, workers)
    raise BadInput(f"unknown place {name!r} to run jobs: give here, ray or ray://HOST:PORT")
