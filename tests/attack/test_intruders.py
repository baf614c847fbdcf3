"""Who is not known, or may not do it, or says nonsense, gets a 4xx and changes nothing."""

import pytest

from tests.attack.target import Target
from tests.service.served import ASKED
from tpatcher.service.auth import ROLES

NEEDS = {  # the least role of every route
    ("POST", "/v1/answer"): "answer", ("POST", "/v1/chat/completions"): "answer",
    ("POST", "/v1/completions"): "answer", ("GET", "/v1/models"): "answer",
    ("GET", "/v1/model"): "answer", ("GET", "/metrics"): "answer",
    ("POST", "/v1/reports"): "report", ("POST", "/v1/reports/plain"): "report",
    ("GET", "/v1/fixes"): "report", ("GET", "/v1/fixes/1"): "report",
    ("GET", "/v1/export"): "report",
    ("GET", "/v1/reports"): "fix", ("DELETE", "/v1/reports/1"): "fix",
    ("DELETE", "/v1/reports?who=x"): "fix", ("POST", "/v1/fixes"): "fix",
    ("DELETE", "/v1/fixes/1"): "fix", ("GET", "/v1/activity"): "fix",
    ("POST", "/v1/rollback"): "admin",
}  # fmt: skip
OPEN = {"/healthz", "/readyz"}


def test_every_route_needs_its_role(target: Target) -> None:
    paths = target.http.get("/openapi.json").json()["paths"]
    known = {path.split("?")[0] for _, path in NEEDS}
    plain = {p.replace("{id}", "1").replace("{source}", "plain") for p in paths}
    assert plain - OPEN == known, "a route is not in the table above"
    for (method, path), needed in NEEDS.items():
        assert target.call(None, method, path, {}).status_code == 401
        bad = {"Authorization": "Bearer " + "x" * 43}
        assert target.call(None, method, path, {}, headers=bad).status_code == 401
        for role in ROLES:
            status = target.call(role, method, path, {}).status_code
            allowed = ROLES.index(role) >= ROLES.index(needed)  # type: ignore[arg-type]
            assert (status not in (401, 403)) == allowed, (method, path, role, status)


def test_no_other_way_in(target: Target) -> None:
    secret = target.tokens["admin"]
    hashed = target.call("admin", "GET", "/v1/model").json()["fingerprint"]
    for headers in (
        {"Authorization": secret}, {"Authorization": f"Basic {secret}"},
        {"Cookie": f"token={secret}"}, {"Authorization": f"Bearer {hashed}"},
        {"Authorization": "Bearer"}, {"X-Api-Key": secret},
        {"Authorization": f"Bearer {secret}, Bearer {secret}"}, {"X-Forwarded-For": "127.0.0.1"},
    ):  # fmt: skip
        assert target.call(None, "GET", "/v1/model", headers=headers).status_code == 401
    assert target.call(None, "GET", f"/v1/model?token={secret}").status_code == 401
    for path in ("/page/../auth.py", "/page/%2e%2e/auth.py", "/page/..%2fauth.py", "/page/x.js"):
        assert target.http.get(path).status_code == 404


REQUEST = b"POST /v1/answer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SMUGGLED = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}", b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: +2\r\n\r\n{}", b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    b"Transfer-Encoding: chunked, identity\r\n\r\n{}", b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    b"Content-Length: 2\r\n X: folded\r\n\r\n{}", b"X\x00Y: 1\r\n\r\n",
]  # fmt: skip
BODIES = [
    b"", b"{", b"null", b"[]", b'"a"', b"\xff\xfe", b"{\x00}", b'{"text": "\\ud800"}', b"1e999",
    b'{"text": ' + b"9" * 5000 + b"}", b"[" * 20_000, b'{"a":' * 20_000,
    b'{"text": "a", "text": 1}',
    b'{"text": "a", "dry_run": "no"}', b'{"text": "' + b"\\u0000" * 5 + b'"}',
    b"{" + b'"a":1,' * 9000,
]  # fmt: skip


def test_nonsense_gets_an_error_and_nothing_falls_over(target: Target) -> None:
    for end in SMUGGLED:
        assert target.status_of(REQUEST + end) in (None, 400, 401, 405, 411, 413, 422, 431, 501)
    headers = {"Authorization": f"Bearer {target.tokens['admin']}"}
    for path in ("/v1/answer", "/v1/fixes", "/v1/reports", "/v1/reports/auto", "/v1/rollback"):
        for body in BODIES:
            found = target.http.post(path, content=body, headers=headers)
            assert 200 <= found.status_code < 500, (path, body[:40], found.text)
            assert found.status_code < 300 or set(found.json()["error"]) >= {"type", "message"}
    assert target.say(ASKED)
    assert "Traceback" not in target.said()


@pytest.mark.parametrize(
    "text", ["<script>document.title=1</script>", "\x1b]0;x\x07", "a\r\nSet-Cookie: x"]
)
def test_texts_forge_no_header_and_no_line_of_the_log(target: Target, text: str) -> None:
    found = target.call("report", "POST", "/v1/reports", {"text": text, "note": text})
    assert found.status_code == 201 and "Set-Cookie" not in found.headers
    assert target.call("fix", "GET", "/v1/reports").json()[-1]["text"] == text
    assert text not in target.said() and found.headers["X-Content-Type-Options"] == "nosniff"
