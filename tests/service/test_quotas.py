"""What one caller can do to the others, and which texts each role sees."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import served
from tests.service.served import ASKED, texts, wrong
from tpatcher.service.auth import ROLES, Access, issue
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Call]:
    """Sends a request by the role that comes first."""
    tokens: dict[str, str] = {role: issue(tmp_path / "t", role, role) for role in ROLES}
    options = {"limits": Limits(reports_each=2, fixes_a_day=2), **getattr(request, "param", {})}
    with served.client(tmp_path / "s.db", access=Access.read(tmp_path / "t"), **options) as client:

        def send(role: str, method: str, path: str, body: object = None) -> Any:
            headers = {"Authorization": f"Bearer {tokens[role]}"}
            return client.request(method, path, json=body, headers=headers)

        send.service = client.app.state.service  # type: ignore[attr-defined]
        yield send


def ask(call: Call, text: str) -> str:
    return str(call("answer", "POST", "/v1/answer", {"text": text}).json()["answers"][0]["answer"])


def test_an_admin_can_roll_back_and_undo_whoever_floods_the_lanes(call: Call) -> None:
    live, go = call.service.live, threading.Event()  # type: ignore[attr-defined]
    body = {"text": ASKED, "answer": wrong(ask(call, ASKED))}
    assert call("fix", "POST", "/v1/fixes", body).status_code == 201
    works = [
        lane.submit(go.wait, 120) for lane in (live.edits, live.undoings) for _ in range(lane.limit)
    ]
    try:
        assert call("fix", "DELETE", "/v1/fixes/1").status_code == 429
        assert call("admin", "DELETE", "/v1/fixes/1").status_code == 200
        for _ in range(10):
            assert call("admin", "POST", "/v1/rollback", {"to": 0}).status_code == 200
    finally:
        go.set()
    for work in works:
        work.result(60)


def test_a_caller_has_a_quota_of_fixes_and_an_admin_has_none(call: Call) -> None:
    asked = [t for t in texts()[100:] if t not in texts()[:40]][:4]
    found = []
    for role, text in zip(("fix", "fix", "fix", "admin"), asked, strict=True):
        body = {"text": text, "answer": wrong(ask(call, text))}
        if role == "fix":
            assert call(role, "POST", "/v1/fixes", {**body, "dry_run": True}).status_code == 200
        found.append(call(role, "POST", "/v1/fixes", body).status_code)
    assert found == [201, 201, 429, 201]


@pytest.mark.parametrize("call", [{"rules": Rules(own_fixes_only=True)}], indirect=True)
def test_only_an_admin_may_undo_what_others_fixed_if_the_operator_says_so(call: Call) -> None:
    said = ask(call, ASKED)
    body = {"text": ASKED, "answer": wrong(said)}
    assert call("admin", "POST", "/v1/fixes", body).status_code == 201
    back = {"text": ASKED, "answer": said, "supersede": True}
    assert call("fix", "POST", "/v1/fixes", back).status_code == 403
    assert call("fix", "DELETE", "/v1/fixes/1").status_code == 403
    assert call("admin", "DELETE", "/v1/fixes/1").status_code == 200
    assert call("fix", "POST", "/v1/fixes", body).status_code == 201
    assert call("fix", "DELETE", "/v1/fixes/3").status_code == 200


def test_a_caller_has_a_quota_of_reports_which_can_be_dismissed_at_once(call: Call) -> None:
    def report(role: str) -> int:
        return int(call(role, "POST", "/v1/reports", {"text": ASKED}).status_code)

    assert [report("report") for _ in range(3)] == [201, 201, 429]
    assert report("fix") == 201 and [report("admin") for _ in range(3)] == [201] * 3
    assert call("report", "DELETE", "/v1/reports?who=report").status_code == 403
    assert call("fix", "DELETE", "/v1/reports?who=report").json() == {"dismissed": 2}
    assert len(call("fix", "GET", "/v1/reports").json()) == 4
    assert report("report") == 201


def test_the_audit_keeps_only_the_beginning_of_a_refused_text(call: Call) -> None:
    body = {"text": "red " * 50 + "end", "answer": "purple"}
    assert call("fix", "POST", "/v1/fixes", body).status_code == 422
    last = call.service.audit.latest()[-1]  # type: ignore[attr-defined]
    assert (last["what"], len(last["text"])) == ("refused", 200)


def test_texts_of_others_are_seen_by_the_roles_that_need_them(call: Call) -> None:
    secret = texts()[150]
    body = {"text": ASKED, "answer": wrong(ask(call, ASKED))}
    ask(call, secret)
    made = call("fix", "POST", "/v1/fixes", body).json()
    near = [one["text"] for one in made["guard"]["nearest"]]
    assert len(near) == 5 and near[0] in texts()  # to judge a fix its maker sees them
    for path in ("/v1/fixes", "/v1/fixes/1"):
        assert not any(text in call("report", "GET", path).text for text in near)
        assert all(json.dumps(text)[1:-1] in call("fix", "GET", path).text for text in near)
    assert secret not in call("fix", "GET", "/v1/activity").text
    assert secret in call("admin", "GET", "/v1/activity").text


@pytest.mark.parametrize("call", [{"rules": Rules(private=True)}], indirect=True)
def test_a_private_service_shows_and_audits_no_text_of_others(call: Call) -> None:
    body = {"text": ASKED, "answer": wrong(ask(call, ASKED))}
    secret = texts()[150]
    ask(call, secret)
    call("fix", "POST", "/v1/fixes", {**body, "dry_run": True})
    call("fix", "POST", "/v1/fixes", {**body, "answer": "purple"})
    made = call("fix", "POST", "/v1/fixes", body)
    seen = [made, *(call("admin", "GET", path) for path in ("/v1/fixes/1", "/v1/activity"))]
    assert not any(text in one.text for one in seen for text in texts())
    events = call.service.audit.latest()  # type: ignore[attr-defined]
    assert [e["what"] for e in events] == ["dry run", "refused", "fix"]
    assert ASKED not in json.dumps(events) and "purple" not in json.dumps(events)


def test_a_key_of_a_fix_that_was_undone_says_that_it_is_not_live(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db") as client:
        said = client.post("/v1/answer", json={"text": ASKED}).json()["answers"][0]["answer"]
        body, key = {"text": ASKED, "answer": wrong(said)}, {"Idempotency-Key": "k"}
        assert client.post("/v1/fixes", json=body, headers=key).json()["live"] is True
        client.delete("/v1/fixes/1")
        again = client.post("/v1/fixes", json=body, headers=key).json()
        assert (again["id"], again["live"]) == (1, False)
        dry = client.post("/v1/fixes", json={**body, "dry_run": True}, headers=key).json()
        assert (dry["id"], dry["live"]) == (None, False)


@pytest.mark.parametrize("to", [True, "0", 1.0, None])
def test_a_rollback_takes_whole_numbers_only(tmp_path: Path, to: object) -> None:
    with served.client(tmp_path / "s.db") as client:
        assert client.post("/v1/rollback", json={"to": to}).status_code == 422
        body = {"text": ASKED, "answer": "no", "dry_run": "no"}
        assert client.post("/v1/fixes", json=body).status_code == 422
