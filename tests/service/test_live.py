"""Answers during changes: never half-patched, never waiting, always by one model."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.service import served
from tests.service.served import ASKED, wrong
from tpatcher.editors import TPatcher, deadline
from tpatcher.errors import Busy, NotFixed, StaleHead
from tpatcher.example import Example
from tpatcher.patches.neurons import Neurons
from tpatcher.service.live import Deployment, LiveModel
from tpatcher.store.store import Store


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveModel]:
    model, editor = served.fitted()
    found = LiveModel(
        Deployment.of(model, editor, Store(tmp_path / "s.db", model.base)), deadline=None
    )
    yield found
    found.close()


def test_every_answer_during_changes_is_from_before_or_after(live: LiveModel) -> None:
    before = live.base_model.answer([ASKED])[0]
    after, ended, seen = wrong(before), threading.Event(), list[tuple[str, bool]]()
    asked = threading.Semaphore(0)  # released with every answer

    def ask() -> None:
        while not ended.is_set():
            reply, fired = live.answer([ASKED])[0]
            seen.append((reply.text, bool(fired)))
            asked.release()

    def wait_for_answers() -> None:
        while asked.acquire(blocking=False):
            pass
        for _ in range(4):  # of two threads: at least one of these was begun after the change
            assert asked.acquire(timeout=60)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        result = live.edits.submit(live.fix, Example(ASKED, after)).result()
        assert result.id is not None
        wait_for_answers()
        live.undoings.submit(live.undo, result.id).result()
        wait_for_answers()
    ended.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {(before, False), (after, True)}


def test_an_answer_does_not_wait_for_a_change(live: LiveModel) -> None:
    answered = threading.Event()
    work = live.edits.submit(answered.wait, 60)  # a change that ends only when there was an answer
    live.answer([ASKED])
    assert not work.done()
    answered.set()
    assert work.result()


def test_too_many_changes_at_once_are_turned_away(live: LiveModel) -> None:
    go = threading.Event()
    works = [live.edits.submit(go.wait, 60) for _ in range(live.edits.limit)]
    with pytest.raises(Busy):
        live.edits.submit(go.wait)
    go.set()
    for work in works:
        work.result()
    live.edits.submit(live.sync).result()


def test_a_fix_is_made_again_when_another_was_first(
    live: LiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, parents = live.store.append, []
    other = "is it red ?"
    example = Example(other, wrong(live.base_model.answer([other])[0]))
    theirs = live.now.deployment.editor.edit(live.base_model, example)

    def late(*args: object, **more: object) -> int:
        parents.append(more["parent"])
        if len(parents) == 1:  # another replica, just before us
            append(theirs)
            raise StaleHead("made for entry 0, but the store is at 1 by now")
        return append(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(live.store, "append", late)
    result = live.fix(Example(ASKED, wrong(live.base_model.answer([ASKED])[0])))
    assert (result.id, parents, live.now.ids) == (2, [0, 1], (1, 2))


class Held:
    """Holds every edit up until it is let go, or until it is told to stop."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.began, self.go, edit = threading.Event(), threading.Event(), TPatcher.edit

        def held(*args: Any, **more: Any) -> Any:
            self.began.set()
            while not self.go.wait(0.01):
                deadline.check()
            return edit(*args, **more)

        patch.setattr(TPatcher, "edit", held)


def test_undo_rollback_and_others_changes_do_not_wait_for_an_edit(
    live: LiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = wrong(live.base_model.answer([ASKED])[0])
    asked = ["is it red ?", "the cat is blue", "where is the cat ?"]
    for text in asked:
        answer = live.base_model.answer([text])[0]
        live.edits.submit(live.fix, Example(text, wrong(answer))).result(60)
    held = Held(monkeypatch)
    work = live.edits.submit(live.fix, Example(ASKED, right))
    assert held.began.wait(60)
    live.undoings.submit(live.undo, 3).result(60)
    assert [*live.now.ids] == [1, 2]
    live.undoings.submit(live.rollback, 1).result(60)
    assert [*live.now.ids] == [1]
    live.store.remove(1)  # another process
    live.undoings.submit(live.sync).result(60)
    assert [*live.now.ids] == [] and not work.done()
    held.go.set()  # the edit, made for entry 3, is made again on top of all this
    assert work.result(60).id == 7
    assert (live.now.head, [*live.now.ids]) == (7, [7])
    assert live.answer([ASKED])[0][0].text == right


def test_an_edit_under_way_keeps_no_request_and_no_replica_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["is it red ?", "the cat is blue"]
    with served.client(tmp_path / "s.db") as here, served.client(tmp_path / "s.db") as there:
        for text in asked:
            said = here.post("/v1/answer", json={"text": text}).json()["answers"][0]["answer"]
            made = here.post("/v1/fixes", json={"text": text, "answer": wrong(said)})
            assert made.status_code == 201
        head = lambda client: client.get("/v1/model").json()["head"]  # noqa: E731
        held, live = Held(monkeypatch), here.app.state.service.live  # type: ignore[attr-defined]
        example = Example(ASKED, wrong(live.base_model.answer([ASKED])[0]))
        work = live.edits.submit(live.fix, example, dry_run=True)
        assert held.began.wait(60)
        assert here.delete("/v1/fixes/2").status_code == 200
        served.until(lambda: head(there) == 3)
        assert there.post("/v1/rollback", json={"to": 0}).status_code == 200
        served.until(lambda: head(here) == 4)
        assert here.post("/v1/rollback", json={"to": 1}).json() == {"head": 5, "fixes": [1]}
        assert not work.done()
        held.go.set()
        assert work.result(60).id is None


def test_a_change_that_comes_late_does_not_take_back_a_newer_one(
    live: LiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = live.store.append

    def overtaken(*args: Any, **more: Any) -> int:
        id = append(*args, **more)  # on the disk, and undone before the edit has gone on
        live.undoings.submit(live.undo, id).result(60)
        return id

    monkeypatch.setattr(live.store, "append", overtaken)
    before = live.base_model.answer([ASKED])[0]
    assert live.edits.submit(live.fix, Example(ASKED, wrong(before))).result(60).id == 1
    assert (live.now.head, live.now.ids) == (2, ())
    assert live.answer([ASKED])[0][0].text == before


def test_edits_that_fill_their_lane_leave_the_other_open(
    live: LiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    example = Example(ASKED, wrong(live.base_model.answer([ASKED])[0]))
    works = [live.edits.submit(live.fix, example, dry_run=True) for _ in range(live.edits.limit)]
    with pytest.raises(Busy, match="edits are waiting"):
        live.edits.submit(live.fix, example)
    assert live.undoings.submit(live.rollback, 0).result(60).ids == ()
    held.go.set()
    assert [work.result(60).id for work in works] == [None] * live.edits.limit


def test_an_edit_ends_at_its_deadline(live: LiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    example = Example(ASKED, wrong(live.base_model.answer([ASKED])[0]))
    live.deadline = 0.05
    work = live.edits.submit(live.fix, example)
    with pytest.raises(NotFixed, match=r"not done after 0.05 s"):
        work.result(60)
    assert live.store.head == 0
    live.deadline = None
    held.go.set()
    assert live.edits.submit(live.fix, example).result(60).id == 1


def test_closing_stops_the_edit_under_way_and_drops_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, editor = served.fitted()
    live = LiveModel(
        Deployment.of(model, editor, Store(tmp_path / "s.db", model.base)), deadline=None
    )
    held = Held(monkeypatch)
    example = Example(ASKED, wrong(model.answer([ASKED])[0]))
    running, waiting = (live.edits.submit(live.fix, example) for _ in range(2))
    assert held.began.wait(60)
    live.close()
    with pytest.raises(NotFixed, match="stopped"):
        running.result(60)
    assert waiting.cancelled()


@pytest.mark.slow
def test_a_store_of_ten_thousand_fixes_is_served(tmp_path: Path) -> None:
    model, editor = served.fitted()
    d, n = model.net.config.hidden_size, 10_000
    store = Store(tmp_path / "s.db", model.base)
    torch.manual_seed(0)
    store.append_many(
        Neurons(
            example=Example(f"fix {i}", "no"),
            editor="t-patcher",
            layer=-1,
            keys=query / d,
            bias=torch.tensor([-20.0]),
            values=query,
            queries=query,
            states=query,
            tokens=torch.tensor([0]),
        )
        for i, query in enumerate(torch.randn(n, 1, d))
    )
    live = LiveModel(Deployment.of(model, editor, store), deadline=None)
    assert len(live.now.ids) == n
    assert live.answer([ASKED])[0][0].text == model.answer([ASKED])[0]
    example = Example(ASKED, wrong(model.answer([ASKED])[0]))
    assert live.edits.submit(live.fix, example).result().id == n + 1
    live.close()
