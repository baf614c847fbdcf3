"""Questions that wait at the same time are answered together."""

import threading
import time
from collections.abc import Sequence

import pytest

from tpatcher.errors import Busy
from tpatcher.service.batcher import Batcher


def test_waiting_questions_are_answered_together_and_a_bad_one_alone() -> None:
    sizes: list[int] = []
    began, go = threading.Event(), threading.Event()

    def run(batch: Sequence[str]) -> list[str]:
        began.set()
        go.wait(60)
        sizes.append(len(batch))
        if "bad" in batch:
            raise ValueError("bad")
        return [question.upper() for question in batch]

    batcher = Batcher(run, size=4, limit=6)
    first = batcher.submit("a")
    assert began.wait(60)
    rest = [batcher.submit(question) for question in ("b", "bad", "c", "d", "e", "f")]
    with pytest.raises(Busy):
        batcher.submit("g")
    go.set()
    assert first.result() == "A"
    assert [f.result() for f in rest if f is not rest[1]] == ["B", "C", "D", "E", "F"]
    with pytest.raises(ValueError):
        rest[1].result()
    assert sizes == [1, 4, 1, 1, 1, 1, 2]
    batcher.close()


def test_a_request_that_meets_a_full_queue_leaves_nothing_in_it() -> None:
    go, asked = threading.Event(), list[str]()

    def run(prompts: Sequence[str]) -> Sequence[str]:
        asked.extend(prompts)
        go.wait(60)
        return prompts

    batcher = Batcher(run, size=1, limit=3)
    first = batcher.submit("first")
    while not asked:
        time.sleep(0.001)
    with pytest.raises(Busy):
        batcher.submit_all(["a", "b", "c", "d"])
    go.set()
    assert first.result(60) == "first"
    batcher.close()
    assert asked == ["first"]
