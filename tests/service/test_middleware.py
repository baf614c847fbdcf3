"""What is refused before any route is reached."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service import served
from tpatcher.service.limits import Limits
from tpatcher.service.middleware import StoppingMiddleware


def test_without_tokens_only_this_machine_is_answered(tmp_path: Path) -> None:
    app = served.app(tmp_path / "s.db")
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        assert client.get("/healthz").status_code == 200
        own = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
        assert client.get("/healthz", headers=own).status_code == 200
        other_port = {**own, "Origin": "http://localhost:3000"}  # another page of this machine
        evil = ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"})
        for headers in (*evil, other_port):
            assert client.post("/v1/answer", json={"text": "a"}, headers=headers).status_code == 403
        other = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.9", 1))
        assert other.get("/healthz").status_code == 403


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db", limits=Limits(body=100)) as client:
        for content in (b"a" * 101, iter([b"a" * 60, b"a" * 60])):  # with its length, and without
            found = client.post("/v1/answer", content=content)
            assert (found.status_code, found.json()["error"]["type"]) == (413, "TooLarge")


def test_every_response_has_the_security_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served.client(tmp_path / "s.db", limits=Limits(body=100)) as client:
        monkeypatch.setattr(client.app.state.service, "check_length", lambda texts: 1 / 0)  # type: ignore[attr-defined]
        found = [
            *(client.get(path) for path in ("/", "/docs", "/openapi.json", "/healthz", "/nowhere")),
            client.post("/v1/answer", json={"text": "a" * 200}),
            client.post("/v1/answer", json={"text": "a"}, headers={"Host": "evil.example"}),
            client.post("/v1/answer", json={"text": "a"}),
        ]
    assert [one.status_code for one in found] == [200, 200, 200, 200, 404, 413, 403, 500]
    for one in found:
        assert one.headers["X-Content-Type-Options"] == "nosniff"
        assert one.headers["Referrer-Policy"] == "no-referrer"
        assert one.headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in one.headers["Content-Security-Policy"]
        assert "script-src 'unsafe-inline'" not in one.headers["Content-Security-Policy"]
        if one.status_code >= 400:
            assert set(one.json()["error"]) == {"type", "message"}


def test_the_documents_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db") as client:
        found = client.get("/docs").text
        paths = client.get("/openapi.json").json()["paths"]
        assert client.get("/redoc").status_code == 404
    assert not any(sign in found for sign in ("http:", "https:", "<script", "//"))
    assert all(path in found for path in paths) and "rephrasings, optional" in found


def test_whoever_waits_at_the_end_gets_an_error_of_the_usual_shape() -> None:
    sent: list[Any] = []

    async def cancelled(scope: Any, receive: Any, send: Any) -> None:
        raise asyncio.CancelledError

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(StoppingMiddleware(cancelled)({"type": "http"}, receive, send))
    assert sent[0]["status"] == 503 and json.loads(sent[1]["body"])["error"]["type"] == "Stopping"
