"""Slow connections end, and there are never too many of them."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service import served
from tpatcher.service import connections
from tpatcher.service.auth import Access, issue
from tpatcher.service.limits import Limits

HEADERS = b"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    app = served.app(tmp_path / "s.db", limits=Limits(body_seconds=0.3, rate=1e6, burst=10**6))
    with served.listening(app) as found:
        yield found


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def rest(one: socket.socket) -> bytes:
    """All that comes until the service ends the connection; the time-out is a safety net."""
    found = b""
    try:
        while part := one.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_a_connection_without_headers_ends(address: str, sent: bytes) -> None:
    with connected(address) as one:
        one.sendall(sent)
        assert rest(one) == b""


def test_pieces_of_headers_give_no_more_time(address: str) -> None:
    with connected(address) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\n")
        one.settimeout(0.05)
        for n in range(1200):
            try:
                one.sendall(b"X-%d: a\r\n" % n)
                if one.recv(10) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it was never ended")


def test_half_of_the_second_requests_headers_ends_too(address: str) -> None:
    with connected(address) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while b'"ok"' not in one.recv(65536):
            pass
        one.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert rest(one) == b""


def test_a_body_that_does_not_come_is_named_and_ends(address: str) -> None:
    with connected(address) as one:
        one.sendall(HEADERS + b'{"text"')
        assert rest(one).startswith(b"HTTP/1.1 408")


def test_without_a_known_token_no_body_is_waited_for(tmp_path: Path) -> None:
    issue(tmp_path / "t", "ann", "answer")
    app = served.app(
        tmp_path / "s.db", access=Access.read(tmp_path / "t"), limits=Limits(body_seconds=3600)
    )
    with served.listening(app) as address, connected(address) as one:
        one.sendall(HEADERS + b'{"text"')
        found = rest(one)
        assert found.startswith(b"HTTP/1.1 401") and b"connection: close" in found.lower()


def test_beyond_the_limit_a_connection_is_ended_at_once_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 3600.0)
    with served.listening(served.app(tmp_path / "s.db")) as address:
        with httpx.Client(base_url=address, timeout=60) as inside:
            assert inside.get("/healthz").status_code == 200
            idle = [connected(address) for _ in range(9)]  # of one address, half of the limit
            for _ in range(50):
                with connected(address) as one:
                    assert rest(one) == b""
        for one in idle:
            one.close()
        served.until(lambda: answers(address))
    assert len(caplog.records) < 10


def test_one_address_leaves_half_of_the_connections_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 3600.0)
    with served.listening(served.app(tmp_path / "s.db")) as address:
        parts = urlsplit(address)
        greedy = [connected(address) for _ in range(20)]
        for one in greedy[10:]:
            assert rest(one) == b""
        to = (parts.hostname, parts.port)
        with socket.create_connection(to, timeout=60, source_address=("127.0.0.2", 0)) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest(other).startswith(b"HTTP/1.1 200")
        for one in greedy:
            one.close()


def test_a_client_that_does_not_take_its_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TAKE_SECONDS", 0.3)
    left = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            if scope["gone"]():
                break
            await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
        left.set()

    class Watched(connections.BoundedProtocol):
        """Says in the scope whether the connection was ended."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            inner = self.app

            async def app(scope: Any, receive: Any, send: Any) -> None:
                await inner({**scope, "gone": transport.is_closing}, receive, send)

            self.app = app

    with served.listening(endless, http=Watched) as address, connected(address) as one:  # type: ignore[arg-type]
        one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert left.wait(60)  # nothing was ever read here


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_the_limit_leaves_room_for_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (300, 300))
    assert connections.max_connections() == 200
    monkeypatch.setattr("resource.getrlimit", lambda kind: (10**6, 10**6))
    assert connections.max_connections() == 1000
