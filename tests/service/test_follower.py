"""Several real processes on one store: what one fixes, the others answer."""

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.testclient import TestClient

from tests import postgres as pg
from tests.service import served
from tests.service.served import ASKED, Process, until, wrong
from tpatcher.errors import Damaged, StoreMoved
from tpatcher.service import follower
from tpatcher.service.metrics import Metrics
from tpatcher.store.location import Successor, record_move, undo_move

postgres = pytest.fixture(scope="module")(pg.running)
url = pytest.fixture(params=["sqlite", "postgres"])(pg.place)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny classifier as a directory, and its traffic as a file."""
    path = tmp_path_factory.mktemp("saved")
    served.save(path)
    return path


@pytest.fixture
def two(saved: Path, postgres: pg.Server) -> Iterator[list[Process]]:
    url = postgres.url()
    found = [Process(saved, url) for _ in range(2)]
    try:
        yield [one.ready() for one in found]
    finally:
        for one in found:
            if one.process.poll() is None:
                one.end()
            one.log.close()


def test_two_services_on_one_store_follow_each_other(url: str) -> None:
    with served.client(url) as first, served.client(url) as second:

        def ask(client: TestClient) -> str:
            found = client.post("/v1/answer", json={"text": ASKED}).json()["answers"][0]
            return str(found["answer"])

        before = ask(first)
        body = {"text": ASKED, "answer": wrong(before)}
        assert first.post("/v1/fixes", json=body).status_code == 201
        until(lambda: ask(second) == wrong(before))
        assert second.post("/v1/rollback", json={"to": 0}).status_code == 200
        until(lambda: ask(first) == before)


@pytest.mark.slow
def test_a_fix_at_one_is_answered_by_the_other_and_either_may_die(two: list[Process]) -> None:
    first, second = two
    before = first.ask()
    assert first.post("fixes", {"text": ASKED, "answer": wrong(before)}).status_code == 201
    until(lambda: second.ask() == wrong(before))
    assert httpx.delete(f"{second.address}/v1/fixes/1").status_code == 200
    until(lambda: first.ask() == before)
    made = second.post("fixes", {"text": ASKED, "answer": wrong(before)})
    assert made.json()["id"] == 3
    until(lambda: first.ask() == wrong(before))
    first.end(signal.SIGKILL)
    assert second.post("rollback", {"to": 0}).json() == {"head": 4, "fixes": []}
    assert second.ask() == before
    # SIGTERM: whoever was let in is answered, then it ends without an error
    halves = [HalfARequest(second.address) for _ in range(4)]
    second.process.send_signal(signal.SIGTERM)
    until(lambda: not listens(second.address))
    assert [half.rest() for half in halves] == [before] * 4
    assert second.process.wait(60) in (0, -signal.SIGTERM)


def listens(address: str) -> bool:
    """Whether anybody takes connections there."""
    host, port = address.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


class HalfARequest:
    """A request that the service has begun to read, and whose end is sent later."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.body = json.dumps({"text": ASKED}).encode()
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        head = (
            f"POST /v1/answer HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(self.body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        assert self.socket.recv(65536).startswith(b"HTTP/1.1 100")
        self.socket.sendall(self.body[:5])

    def rest(self) -> str:
        """Send the rest; returns the answer."""
        self.socket.sendall(self.body[5:])
        response = b""
        while more := self.socket.recv(65536):
            response += more
        self.socket.close()
        return str(json.loads(response.partition(b"\r\n\r\n")[2])["answers"][0]["answer"])


def test_answers_go_on_while_the_database_is_away(tmp_path: Path) -> None:
    if pg.BIN is None:
        pytest.skip("PostgreSQL is not installed")
    with pg.server() as server, served.client(server.url()) as client:
        before = client.post("/v1/answer", json={"text": ASKED}).json()["answers"][0]["answer"]
        body = {"text": ASKED, "answer": wrong(before)}
        server.stop()
        assert client.post("/v1/answer", json={"text": ASKED}).status_code == 200
        away = client.post("/v1/fixes", json=body)
        assert (away.status_code, away.json()["error"]["type"]) == (503, "NotStored")
        server.start()
        assert client.post("/v1/fixes", json=body).status_code == 201


class Stub:
    """A live model whose store has moved on; how it is followed is up to each test."""

    def __init__(self, sync: Callable[[], object]) -> None:
        engine = SimpleNamespace(dialect=SimpleNamespace(name="sqlite"))
        self.store: Any = SimpleNamespace(head=2, engine=engine)
        self.now, self.sync = SimpleNamespace(head=1), sync


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "PATIENCE", 0.2)


@pytest.mark.parametrize(
    "error", [StoreMoved("it moved to 'nowhere'"), Damaged("the log"), TypeError("layer 'x'")]
)
def test_a_replica_that_cannot_follow_is_not_ready_steadily(
    impatient: None, error: Exception
) -> None:
    tries = 0

    def fails_slowly() -> None:
        nonlocal tries
        tries += 1
        time.sleep(0.1)  # as loading a base does: several looks long
        raise error

    stub, metrics = Stub(fails_slowly), Metrics()
    one = follower.Follower(cast(Any, stub), metrics, every=0.02)
    until(lambda: str(error) in (one.problem or ""))
    seen = []
    while tries < 20:
        seen.append(one.problem)
        time.sleep(0.01)
    assert None not in seen
    assert all(str(error) in problem for problem in seen if problem)
    stub.sync = lambda: setattr(stub.now, "head", 2)  # and the thread is still there
    until(lambda: one.problem is None)
    one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The follower's clock, which stands still until a test moves it."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(follower, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_a_long_move_is_no_failure(clock: SimpleNamespace) -> None:
    go = threading.Event()

    def moves() -> None:
        assert go.wait(60)
        stub.now.head = 2

    stub = Stub(moves)
    one = follower.Follower(cast(Any, stub), Metrics(), every=0.02)
    for _ in range(5):
        clock.now += 100
        until(lambda: one.problem is None)
    go.set()
    until(lambda: stub.now.head == 2)
    clock.now += 100
    until(lambda: one.problem is None)
    one.close()


def test_a_move_that_fails_after_long_was_a_failure_all_the_time(clock: SimpleNamespace) -> None:
    go = threading.Event()

    def fails() -> None:
        assert go.wait(60)
        raise StoreMoved("not ready")

    one = follower.Follower(cast(Any, Stub(fails)), Metrics(), every=0.02)
    for _ in range(5):
        clock.now += 100
        until(lambda: one.problem is None)
    go.set()
    until(lambda: "could not be followed for 500 s: not ready" in (one.problem or ""))
    one.close()


def test_a_store_that_cannot_even_be_read_ends_no_thread(impatient: None) -> None:
    stub = Stub(lambda: None)
    sound, stub.store = stub.store, None  # AttributeError at every look
    one = follower.Follower(cast(Any, stub), Metrics(), every=0.02)
    until(lambda: "AttributeError" in (one.problem or ""))
    stub.store, sound.head = sound, 1
    until(lambda: one.problem is None)
    one.close()


def test_readyz_says_why_and_for_as_long_as_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpatcher.service.live.RELOAD_AFTER", 0.1)
    monkeypatch.setattr(follower, "PATIENCE", 1.0)
    with served.client(tmp_path / "s.db") as client:
        live = client.app.state.service.live  # type: ignore[attr-defined]
        record_move(live.store, Successor("nowhere", "n.db"), parent=0)
        until(lambda: client.get("/readyz").status_code == 503)
        found = [client.get("/readyz") for _ in range(200)]
        assert {one.status_code for one in found} == {503}
        assert "nowhere" in found[-1].json()["error"]["message"]
        undo_move(live.store)
        until(lambda: client.get("/readyz").status_code == 200)


def test_a_file_that_was_removed_takes_no_fix_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PATIENCE", 1.0)
    with served.client(tmp_path / "s.db") as client:
        said = client.post("/v1/answer", json={"text": ASKED}).json()["answers"][0]["answer"]
        for part in tmp_path.glob("s.db*"):
            part.unlink()
        made = client.post("/v1/fixes", json={"text": ASKED, "answer": wrong(said)})
        assert (made.status_code, made.json()["error"]["type"]) == (503, "NotStored")
        until(lambda: "removed or replaced" in client.get("/readyz").text)
        assert client.get("/readyz").status_code == 503
        assert client.post("/v1/answer", json={"text": ASKED}).status_code == 200
