"""Answers during edits: never half-patched, never waiting, always by one model."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.service import served
from tests.service.served import ASKED, texts, wrong
from tpatcher.errors import Busy, StaleHead
from tpatcher.example import Example
from tpatcher.patches.neurons import Neurons
from tpatcher.service.answering import Watch
from tpatcher.service.batcher import Batcher
from tpatcher.service.ground import Ground
from tpatcher.service.live import Desk
from tpatcher.store.store import Store


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    model, editor = served.fitted()
    one = Desk(Ground.of(model, editor, Store(tmp_path / "s.db", model)))
    yield one
    one.close()
    one.store.close()


def test_every_answer_during_changes_is_from_before_or_after(desk: Desk) -> None:
    before = desk.base.answer([ASKED])[0]
    after, ended, seen = wrong(before), threading.Event(), []

    def ask() -> None:
        while not ended.is_set():
            said, fired = desk.say([ASKED])[0]
            seen.append((said.text, bool(fired)))
            time.sleep(0.001)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        made = desk.write(desk.fix, Example(ASKED, after)).result()
        assert made.id is not None
        desk.write(desk.undo, made.id).result()
    ended.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {(before, False), (after, True)}


def test_an_answer_does_not_wait_for_an_edit(desk: Desk) -> None:
    began, go = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        go.wait(20)

    work = desk.write(slow)
    began.wait(5)
    now = time.perf_counter()
    desk.say([ASKED])
    assert time.perf_counter() - now < 2 and not work.done()
    go.set()
    work.result()


def test_too_many_changes_at_once_are_turned_away(desk: Desk) -> None:
    go = threading.Event()
    works = [desk.write(go.wait, 20) for _ in range(desk.pending)]
    with pytest.raises(Busy):
        desk.write(go.wait)
    go.set()
    for work in works:
        work.result()
    desk.write(desk.sync).result()


def test_a_fix_is_made_again_when_another_was_first(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = desk.store.append, []

    def late(*args: object, **more: object) -> int:
        calls.append(more["parent"])
        if len(calls) == 1:  # another replica, just before us
            other = desk.now.ground.editor.edit(desk.base, Example("is it red ?", wrong(said)))
            real(other)
            raise StaleHead("made for entry 0, but the store is at 1 by now")
        return real(*args, **more)  # type: ignore[arg-type]

    said = desk.base.answer(["is it red ?"])[0]
    monkeypatch.setattr(desk.store, "append", late)
    made = desk.fix(Example(ASKED, wrong(desk.base.answer([ASKED])[0])))
    assert (made.id, calls, desk.now.ids) == (2, [0, 1], (1, 2))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "opt", "llama", "bart", "t5"])
def test_what_fired_is_what_a_trace_says(name: str) -> None:
    from tpatcher.models.traces import trace

    model, editor = served.fitted(name)
    worn = model.twin()
    classify = model.task.name == "classify"
    for text in (ASKED, "where is the cat ?"):
        said = worn.answer([text])[0]
        worn.push(editor.edit(worn, Example(text, wrong(said) if classify else "rome paris")))
    asked = [ASKED, "where is the cat ?", "the dog was in rome", *texts()[:5]]
    found = Watch(worn).say(asked)
    assert [s.text for s in found] == [worn.answer([t])[0] for t in asked]
    for text, said_now in zip(asked, found, strict=True):
        queries = trace(worn, [text], [said_now.ids]).queries
        assert torch.allclose(queries, said_now.queries, atol=2e-3)
        for i, patch in enumerate(worn.patches):
            assert isinstance(patch, Neurons)
            response = float((queries @ patch.keys.T + patch.bias).max())
            if abs(response) > 0.05:
                assert (response > 0) == (i in said_now.fired)
    assert 0 in found[0].fired and 1 in found[1].fired


def test_waiting_questions_are_answered_together_and_a_bad_one_alone() -> None:
    sizes: list[int] = []
    go = threading.Event()

    def run(batch: object) -> list[str]:
        go.wait(5)
        sizes.append(len(batch))  # type: ignore[arg-type]
        if "bad" in batch:  # type: ignore[operator]
            raise ValueError("bad")
        return [one.upper() for one in batch]  # type: ignore[attr-defined]

    batcher = Batcher(run, size=4, limit=6)
    first = batcher.submit("a")
    while batcher.waiting.qsize():
        time.sleep(0.001)
    rest = [batcher.submit(one) for one in ("b", "bad", "c", "d", "e", "f")]
    with pytest.raises(Busy):
        batcher.submit("g")
    go.set()
    assert first.result() == "A"
    assert [f.result() for f in rest if f is not rest[1]] == ["B", "C", "D", "E", "F"]
    with pytest.raises(ValueError):
        rest[1].result()
    assert sizes == [1, 4, 1, 1, 1, 1, 2]
    batcher.close()


@pytest.mark.slow
def test_a_restart_with_ten_thousand_fixes_takes_seconds(tmp_path: Path) -> None:
    model, editor = served.fitted()
    d, n = model.net.config.hidden_size, 10_000
    store = Store(tmp_path / "s.db", model)
    torch.manual_seed(0)
    with store.writing() as connection:  # one commit: the disk is not what is measured
        for i in range(n):
            query = torch.randn(1, d)
            patch = Neurons(
                example=Example(f"fix {i}", "no"), editor="t-patcher", layer=-1, keys=query / d,
                bias=torch.tensor([-20.0]), values=query, queries=query, states=query,
                tokens=torch.tensor([0]),
            )  # fmt: skip
            store._add(connection, "append", None, None, "", store._row(patch, None, {}, {}))
    began = time.perf_counter()
    one = Desk(Ground.of(model, editor, store))
    assert len(one.now.ids) == n and time.perf_counter() - began < 20
    began = time.perf_counter()
    assert one.say([ASKED])[0][0].text == model.answer([ASKED])[0]
    made = one.write(one.fix, Example(ASKED, wrong(model.answer([ASKED])[0]))).result()
    assert made.id == n + 1 and time.perf_counter() - began < 10
    one.close()
    store.close()
