"""What is refused before any route is reached."""

from pathlib import Path

from fastapi.testclient import TestClient

from tests.service import served
from tpatcher.service.limits import Limits


def test_without_tokens_only_this_machine_is_answered(tmp_path: Path) -> None:
    app = served.app(tmp_path / "s.db")
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        assert client.get("/healthz").status_code == 200
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert client.post("/v1/answer", json={"text": "a"}, headers=headers).status_code == 403
        other = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.9", 1))
        assert other.get("/healthz").status_code == 403


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db", limits=Limits(body=100)) as client:
        for content in (b"a" * 101, iter([b"a" * 60, b"a" * 60])):  # with its length, and without
            found = client.post("/v1/answer", content=content)
            assert (found.status_code, found.json()["error"]["type"]) == (413, "TooLarge")
