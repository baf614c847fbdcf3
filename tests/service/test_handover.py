"""A running service moves over to a new base, and no request is dropped."""

import threading
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.checkpoints.fixed_models import EASY
from tests.service import served
from tests.service.served import ASKED, texts, until, wrong
from tpatcher.checkpoints.handover import move
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.service.limits import Limits
from tpatcher.service.serve import build
from tpatcher.store.location import Successor, follow, record_move, undo_move
from tpatcher.store.store import Store


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny classifier as a directory, with its traffic in a file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    served.save(tmp_path)
    return tmp_path / "model"


def moves_over(address: str, model: Path, store: str, out: Path) -> str:
    """Consolidate under a running service that is asked all the time; gives the fixed answer."""
    seen, ended = list[tuple[int, str]](), threading.Event()
    http = httpx.Client(base_url=f"{address}/v1/", timeout=60)
    before = http.post("answer", json={"text": ASKED}).json()["answers"][0]["answer"]
    fix = {"text": ASKED, "answer": wrong(before)}
    assert http.post("fixes", json=fix).status_code == 201
    assert http.post("reports", json={"text": "is it red ?"}).status_code == 201

    def press() -> None:
        with httpx.Client(timeout=60) as mine:
            while not ended.wait(0.03):
                found = mine.post(f"{address}/v1/answer", json={"text": ASKED})
                body = found.json() if found.status_code == 200 else None
                seen.append((found.status_code, body["answers"][0]["answer"] if body else ""))

    def answered() -> None:
        """Wait for answers that were asked for from now on."""
        count = len(seen)
        until(lambda: len(seen) >= count + 4)

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    answered()
    base = load(model)
    old = Store(store, base.base)
    done = move(base, old, list(texts()), out, settings=EASY)
    # asked for before the swap: it waits for the new base and is made there
    late = http.post("fixes", json={"text": "where is the cat ?", "answer": "maybe"})
    until(lambda: http.get("model").json()["name"] == done.to.model)
    answered()
    ended.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {(200, wrong(before))}
    assert late.status_code == 201 or late.json()["error"]["type"] == "AlreadyRight"
    kept = Store(done.to.store, load(done.to.model).base)
    made = int(late.status_code == 201)  # nothing else: what was fixed before is in the base
    assert http.get("fixes").json()["live"] == len(kept.live_ids()) == made
    reports = http.get("reports").json()
    assert [r["text"] for r in reports] == ["is it red ?"]  # the queue came along
    assert (old.log()[-1].action, old.head) == ("move", 2)
    for one in (old, kept, http):
        one.close()
    return wrong(before)


def test_a_service_moves_over_while_it_answers(model: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    app = build(load(model), store, traffic=tmp_path / "texts.txt", limits=Limits(rate=1e6))
    with served.listening(app) as address:
        moves_over(address, model, store, tmp_path / "new")


@pytest.mark.slow
def test_a_process_moves_over_and_one_that_is_started_as_ever_follows(
    model: Path, tmp_path: Path
) -> None:
    store = str(tmp_path / "s.db")
    one = served.Process(tmp_path, store).ready()
    try:
        answer = moves_over(one.address, model, store, tmp_path / "new")
    finally:
        one.end()
    again = served.Process(tmp_path, store).ready()
    try:
        name = httpx.get(f"{again.address}/v1/model").json()["name"]
        assert (name, again.ask()) == (str(tmp_path / "new"), answer)
    finally:
        again.end()


def test_what_was_taught_is_guarded_on_the_new_base(model: Path, tmp_path: Path) -> None:
    base, (_, editor) = load(model), served.fitted()
    store = Store(tmp_path / "s.db", base.base)
    store.append(editor.edit(base, Example(ASKED, wrong(base.answer([ASKED])[0]))))
    move(base, store, list(texts()), tmp_path / "new", settings=EASY)
    store.close()
    name, place = follow(str(model), tmp_path / "s.db")
    app = build(load(name), place, name=str(model), traffic=tmp_path / "texts.txt")
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        deployment = app.state.service.live.now.deployment
        assert ASKED in [c.text for c in deployment.guard.canaries]
        assert ASKED in deployment.editor.memory.texts
        assert client.get("/v1/fixes").json()["fixes"] == []


def test_a_move_that_cannot_be_followed_leaves_the_old_base_answering(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpatcher.service.live.RELOAD_AFTER", 0.1)
    app = build(load(model), tmp_path / "s.db", traffic=tmp_path / "texts.txt")
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        said = client.post("/v1/answer", json={"text": ASKED}).json()
        store = app.state.service.live.store
        to = Successor(str(tmp_path / "nowhere"), str(tmp_path / "n.db"))
        record_move(store, to, parent=0)
        until(lambda: "tpatcher_sync_errors_total 0.0" not in client.get("/metrics").text)
        assert client.post("/v1/answer", json={"text": ASKED}).json() == said
        answer = wrong(said["answers"][0]["answer"])
        found = client.post("/v1/fixes", json={"text": ASKED, "answer": answer})
        assert (found.status_code, found.json()["error"]["type"]) == (409, "StoreMoved")
        assert "nowhere" in found.json()["error"]["message"]
        with monkeypatch.context() as impatient:
            impatient.setattr("tpatcher.service.follower.PATIENCE", 0.0)
            until(lambda: client.get("/readyz").status_code == 503)
            assert "nowhere" in client.get("/readyz").json()["error"]["message"]
        undo_move(store)  # taken back: the service goes on as before
        until(lambda: client.get("/v1/model").json()["head"] == 2)
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/fixes", json={"text": ASKED, "answer": answer}).status_code == 201
