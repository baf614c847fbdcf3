"""Questions that wait at the same time are answered in one batch; nobody waits for a batch."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from tpatcher.errors import Busy

T = TypeVar("T")


class Batcher(Generic[T]):
    """One thread that takes whatever is waiting, up to `size`, and runs it together.

    A batch is never waited for: a lone question runs at once, and those that come meanwhile are
    the next batch.
    """

    def __init__(self, run: Callable[[Sequence[str]], Sequence[T]], size: int, limit: int) -> None:
        self.run, self.size = run, size
        self.waiting: queue.Queue[tuple[str, Future[T]] | None] = queue.Queue(limit)
        self.thread = threading.Thread(target=self._loop, name="answers", daemon=True)
        self.thread.start()

    def submit(self, prompt: str) -> "Future[T]":
        """The answer to come; `Busy` if too many wait already."""
        future: Future[T] = Future()
        try:
            self.waiting.put_nowait((prompt, future))
        except queue.Full:
            raise Busy(f"{self.waiting.maxsize} questions are waiting already") from None
        return future

    def close(self) -> None:
        """Answer what is waiting, then end."""
        self.waiting.put(None)
        self.thread.join()

    def _loop(self) -> None:
        while (first := self.waiting.get()) is not None:
            batch, ends = [first], False
            while len(batch) < self.size:
                try:
                    more = self.waiting.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ends = True
                    break
                batch.append(more)
            self._answer([one for one in batch if one[1].set_running_or_notify_cancel()])
            if ends:
                return

    def _answer(self, batch: list[tuple[str, "Future[T]"]]) -> None:
        if not batch:
            return
        try:
            found = self.run([prompt for prompt, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for one in batch:  # so that one bad question spoils no other's answer
                self._answer([one])
            return
        for (_, future), answer in zip(batch, found, strict=True):
            future.set_result(answer)
