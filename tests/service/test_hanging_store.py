"""A store that hangs, and is not gone: answers and health go on, and nothing waits without end."""

import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from tests import postgres as pg
from tests.service import served
from tests.service.served import ASKED, until
from tpatcher.errors import NotStored
from tpatcher.service.limits import Limits
from tpatcher.store import engine
from tpatcher.store import postgres as patient
from tpatcher.store.store import Store

postgres = pytest.fixture(scope="module")(pg.running)
MANY = 60  # more than the threads that a web framework has for everything


@contextmanager
def asked_at_once(
    method: str, address: str, body: dict[str, str] | None
) -> Iterator[list["Future[httpx.Response]"]]:
    """Many requests that are under way at the same time."""
    pool = ThreadPoolExecutor(MANY)
    yield [pool.submit(httpx.request, method, address, json=body, timeout=300) for _ in range(MANY)]
    pool.shutdown()


def all_is_well(address: str) -> None:
    """Answers, health and the page can be had; each time-out is a safety net."""
    for _ in range(3):
        found = httpx.post(f"{address}/v1/answer", json={"text": ASKED}, timeout=30)
        assert found.status_code == 200
        for path in ("/healthz", "/", "/metrics", "/v1/model"):
            assert httpx.get(f"{address}{path}", timeout=30).status_code == 200
        assert httpx.get(f"{address}/readyz", timeout=30).status_code in (200, 503)


def test_a_lock_that_is_held_stops_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SQLITE_TIMEOUT", 120.0)  # reports wait until they are let go
    monkeypatch.setattr("tpatcher.service.deps.STORE_PATIENCE", 300.0)
    file = tmp_path / "s.db"
    app = served.app(file, limits=Limits(rate=1e6, burst=10**6, store=20))
    with served.listening(app) as address, closing(sqlite3.connect(file)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")  # somebody else writes, and does not end
        with asked_at_once("POST", f"{address}/v1/reports", {"text": ASKED}) as asked:
            until(lambda: sum(one.done() for one in asked) == MANY - 20)
            assert {one.result().status_code for one in asked if one.done()} == {429}
            all_is_well(address)
            assert httpx.get(f"{address}/readyz", timeout=30).status_code == 200
            other.execute("ROLLBACK")
        assert sorted(one.result().status_code for one in asked) == [201] * 20 + [429] * 40


def test_a_lock_that_is_held_is_an_error_after_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.SQLITE_TIMEOUT == 5
    monkeypatch.setattr(engine, "SQLITE_TIMEOUT", 0.1)
    file = tmp_path / "s.db"
    with served.client(file) as client, closing(sqlite3.connect(file)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        found = client.post("/v1/reports", json={"text": ASKED})
        assert (found.status_code, found.json()["error"]["type"]) == (503, "NotStored")
        other.execute("ROLLBACK")
        assert client.post("/v1/reports", json={"text": ASKED}).status_code == 201


def test_a_request_does_not_wait_for_the_store_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpatcher.service.deps.STORE_PATIENCE", 0.1)
    go = threading.Event()
    with served.client(tmp_path / "s.db") as client:
        service = client.app.state.service  # type: ignore[attr-defined]
        monkeypatch.setattr(service.reports, "waiting", lambda: go.wait(120))
        found = client.get("/v1/reports")
        assert (found.status_code, found.json()["error"]["type"]) == (503, "NotStored")
        assert "has not answered for 0.1 s" in found.text
        go.set()


def test_a_stopped_database_stops_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    if pg.BIN is None:
        pytest.skip("PostgreSQL is not installed")
    monkeypatch.setattr("tpatcher.service.follower.PATIENCE", 2.0)
    monkeypatch.setattr(patient, "ANSWER_WITHIN", 1.0)
    monkeypatch.setitem(patient.NETWORK, "connect_timeout", 2)
    with pg.server() as server:
        app = served.app(server.url(), limits=Limits(rate=1e6, burst=10**6, store=10))
        with served.listening(app) as address:
            assert httpx.get(f"{address}/v1/fixes", timeout=60).status_code == 200
            server.signal(signal.SIGSTOP)
            try:
                with asked_at_once("GET", f"{address}/v1/fixes", None) as asked:
                    all_is_well(address)
                    until(lambda: httpx.get(f"{address}/readyz", timeout=30).status_code == 503)
                    body = {"text": ASKED, "answer": "purple"}
                    fix = httpx.post(f"{address}/v1/fixes", json=body, timeout=120)
                    assert (fix.status_code, fix.json()["error"]["type"]) == (503, "NotStored")
                    found = {one.result().status_code for one in asked}
                    assert found <= {429, 503} and 503 in found  # all of them end
            finally:
                server.signal(signal.SIGCONT)
            until(lambda: httpx.get(f"{address}/readyz", timeout=30).status_code == 200)
            assert httpx.get(f"{address}/v1/fixes", timeout=60).status_code == 200


def test_a_connection_that_is_open_gives_a_stopped_database_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if pg.BIN is None:
        pytest.skip("PostgreSQL is not installed")
    monkeypatch.setattr(patient, "ANSWER_WITHIN", 0.5)
    monkeypatch.setitem(patient.NETWORK, "connect_timeout", 2)
    with pg.server() as server, ThreadPoolExecutor(1) as pool:
        store = Store(server.url(), served.fitted()[0].base)
        assert store.head == 0
        with store.reading() as connection:  # no new connection: this one is left without answer
            server.signal(signal.SIGSTOP)
            try:
                asked = pool.submit(connection.exec_driver_sql, "SELECT 1")
                with pytest.raises(sa.exc.OperationalError, match=r"no answer for 0.5 s"):
                    asked.result(60)
            finally:
                server.signal(signal.SIGCONT)
        assert store.head == 0
        store.close()


def test_no_wait_of_the_database_is_without_end(postgres: pg.Server) -> None:
    store = Store(postgres.url(), served.fitted()[0].base)
    with store.reading() as connection:
        found = {n: connection.exec_driver_sql(f"SHOW {n}").scalar_one() for n in patient.LIMITS}
    assert found == {
        "synchronous_commit": "on",
        "lock_timeout": "5s",
        "statement_timeout": "15s",
        "idle_in_transaction_session_timeout": "15s",
    }
    assert store.engine.pool.timeout() == 5  # type: ignore[attr-defined]
    store.close()


def test_a_writer_that_never_ends_keeps_others_waiting_for_seconds_only(
    postgres: pg.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(patient.LIMITS, "lock_timeout", "100ms")
    url, base = postgres.url(), served.fitted()[0].base
    store, other = Store(url, base), Store(url, base)
    with other.writing(), pytest.raises(NotStored, match="lock timeout"), store.writing():
        pass
    with store.writing() as connection:  # and when the other has ended all is as before
        assert connection.execute(sa.select(sa.literal(1))).scalar_one() == 1
    store.close()
    other.close()
