"""A lane: a few threads that take one piece of work after the other, up to a limit."""

import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from tpatcher.errors import Busy

T = TypeVar("T")


class Lane:
    """Threads for one sort of work; what is in one lane never waits behind another's.

    The threads are daemons: work that hangs does not keep the process from ending.
    """

    def __init__(self, what: str, limit: int, threads: int = 1) -> None:
        self.what, self.limit = what, limit
        self.limit_each = max(1, limit // 4)  # of one owner's
        self._owners: Counter[str | None] = Counter()  # how much each has in the lane
        self._counting = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any], str | None] | None]
        self._waiting = queue.SimpleQueue()
        self._started = threading.Barrier(threads + 1)
        self._threads = [
            threading.Thread(target=self._loop, name=what, daemon=True) for _ in range(threads)
        ]
        cores = torch.get_num_threads()
        for thread in self._threads:
            thread.start()
        self._started.wait()
        torch.set_num_threads(cores)  # the threads have set their own, and with it the default

    def submit(
        self, work: Callable[..., T], *args: Any, owner: str | None = None, **more: Any
    ) -> "Future[T]":
        """Have something done in this lane; raises `Busy` if too much waits in it already.

        An owner who is named may have a quarter of the lane, so that the others get in.
        """
        with self._counting:
            if self._owners.total() >= self.limit:
                raise Busy(f"{self.limit} {self.what} are waiting already", after=5)
            if owner is not None and self._owners[owner] >= self.limit_each:
                raise Busy(f"{self.limit_each} {self.what} of {owner!r} wait already", after=5)
            self._owners[owner] += 1
        future: Future[T] = Future()
        self._waiting.put((future, lambda: work(*args, **more), owner))
        return future

    def close(self, patience: float = 2.0) -> None:
        """Drop what waits, and give what is under way a few seconds to end."""
        while not self._waiting.empty():
            if (item := self._waiting.get()) is not None:
                item[0].cancel()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(patience)

    def _loop(self) -> None:
        # One core, so that the others are left to the answers. The priority stays: a thread that
        # waits for the processor while it holds Python's lock would keep the answers waiting too.
        torch.set_num_threads(1)
        self._started.wait()
        while (item := self._waiting.get()) is not None:
            self._do(*item)
            del item  # or it would be kept until the next piece of work

    def _release(self, owner: str | None) -> None:
        with self._counting:
            self._owners[owner] -= 1
            self._owners += Counter()  # keep no zeros

    def _do(self, future: "Future[Any]", work: Callable[[], Any], owner: str | None) -> None:
        if not future.set_running_or_notify_cancel():
            self._release(owner)
            return
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        self._release(owner)  # first: whoever waits for the result may submit at once
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
