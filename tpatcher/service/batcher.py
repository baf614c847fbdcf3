"""Answers questions that wait at the same time in one batch, without waiting for a batch."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from tpatcher.errors import Busy

T = TypeVar("T")


class Batcher(Generic[T]):
    """One thread that takes whatever is waiting, up to `size`, and runs it together.

    It never waits for a batch to fill: a lone question runs at once, and those that come in
    meanwhile are the next batch.
    """

    def __init__(self, run: Callable[[Sequence[str]], Sequence[T]], size: int, limit: int) -> None:
        self.run, self.size = run, size
        self.waiting: queue.Queue[tuple[str, Future[T]] | None] = queue.Queue(limit)
        self.thread = threading.Thread(target=self._loop, name="answers", daemon=True)
        self.thread.start()

    def submit(self, prompt: str) -> "Future[T]":
        """A future of the answer; raises `Busy` if too many questions wait already."""
        future: Future[T] = Future()
        try:
            self.waiting.put_nowait((prompt, future))
        except queue.Full:
            raise Busy(f"{self.waiting.maxsize} questions are waiting already") from None
        return future

    def submit_all(self, prompts: Sequence[str]) -> list["Future[T]"]:
        """Futures of all answers; if too many questions wait, none of these is asked."""
        futures: list[Future[T]] = []
        try:
            for prompt in prompts:
                futures.append(self.submit(prompt))
        except Busy:
            for future in futures:
                future.cancel()
            raise
        return futures

    def close(self) -> None:
        """Answer what is waiting, then stop."""
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
            self._answer([item for item in batch if item[1].set_running_or_notify_cancel()])
            if ends:
                return

    def _answer(self, batch: list[tuple[str, "Future[T]"]]) -> None:
        if not batch:
            return
        try:
            answers = self.run([prompt for prompt, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for item in batch:  # so that one bad question spoils no other's answer
                self._answer([item])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
