"""Ask, report, fix, undo: as a client sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service import served
from tests.service.served import ASKED, wrong
from tpatcher.editors import TPatcher
from tpatcher.models.loading import load
from tpatcher.service.app import create_app
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits
from tpatcher.service.live import Deployment
from tpatcher.store.store import Store


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served.client(tmp_path / "s.db") as one:
        yield one


def ask(client: TestClient, text: str = ASKED) -> tuple[str, list[int]]:
    found = client.post("/v1/answer", json={"text": text}).json()["answers"][0]
    return found["answer"], found["fixes"]


def fix(client: TestClient, answer: str, text: str = ASKED, **more: object) -> dict[str, object]:
    found = client.post("/v1/fixes", json={"text": text, "answer": answer, **more})
    assert found.status_code in (200, 201), found.text
    return found.json()  # type: ignore[no-any-return]


def test_ask_fix_ask_again_undo(client: TestClient) -> None:
    before, fired = ask(client)
    assert fired == []
    made = fix(client, wrong(before))
    assert ask(client) == (wrong(before), [made["id"]])
    assert made["certificate"]["memory_changed"] == 0  # type: ignore[index]
    assert made["guard"]["right"] and not made["guard"]["flipped"]  # type: ignore[index]
    undone = client.delete(f"/v1/fixes/{made['id']}")
    assert undone.json() == {"id": made["id"], "no_longer_hold": []}
    assert ask(client) == (before, [])
    assert client.delete(f"/v1/fixes/{made['id']}").status_code == 404


def test_a_batch_is_answered_in_order_and_other_texts_are_left_alone(client: TestClient) -> None:
    model, _ = served.fitted()
    others = list(served.texts()[:30])
    made = fix(client, wrong(ask(client)[0]))
    found = client.post("/v1/answer", json={"texts": [*others, ASKED]}).json()["answers"]
    assert [a["text"] for a in found] == [*others, ASKED]
    assert [a["answer"] for a in found[:-1]] == model.answer(others)
    assert found[-1]["fixes"] == [made["id"]]


def test_a_dry_run_changes_nothing_and_says_what_would(client: TestClient) -> None:
    before, _ = ask(client)
    made = fix(client, wrong(before), dry_run=True, rephrasings=["hamlet was wrote ?"])
    assert made["id"] is None and made["would_refuse"] == []
    guard = made["guard"]
    assert guard["canaries"] == 40 and len(guard["nearest"]) == 5  # type: ignore[index, call-overload, arg-type]
    assert list(guard["rephrasings"]) == ["hamlet was wrote ?"]  # type: ignore[index, call-overload]
    assert ask(client) == (before, [])
    nothing: dict[str, object] = {
            "head": 0, "live": 0, "total": 0, "next": None, "damaged": [], "fixes": [],
        }  # fmt: skip
    assert client.get("/v1/fixes").json() == nothing


def test_a_dry_run_is_audited_and_rephrasings_are_limited(client: TestClient) -> None:
    before, _ = ask(client)
    fix(client, wrong(before), dry_run=True)
    kept = client.app.state.service.audit.latest()  # type: ignore[attr-defined]
    assert [(e["who"], e["what"], e["text"]) for e in kept] == [("local", "dry run", ASKED)]
    body = {"text": ASKED, "answer": wrong(before), "rephrasings": ["hamlet ?"] * 17}
    refused = client.post("/v1/fixes", json=body)
    assert refused.status_code == 422 and "at most 16 items" in refused.text


def test_the_same_key_makes_one_fix(client: TestClient) -> None:
    before, _ = ask(client)
    body = {"text": ASKED, "answer": wrong(before)}
    keyed = {"Idempotency-Key": "abc"}
    first = client.post("/v1/fixes", json=body, headers=keyed)
    again = client.post("/v1/fixes", json=body, headers=keyed)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = client.post("/v1/fixes", json={**body, "text": "is rome red ?"}, headers=keyed)
    assert other.status_code == 422 and "was used for another fix" in other.text


def test_what_cannot_be_fixed_says_why(client: TestClient) -> None:
    before, _ = ask(client)
    for body, status, kind in (
        ({"text": ASKED, "answer": before}, 409, "AlreadyRight"),
        ({"text": ASKED, "answer": "purple"}, 422, "BadInput"),
        ({"text": "  ", "answer": "no"}, 422, "BadInput"),
        ({"text": ASKED}, 422, "BadInput"),
        ({"text": ASKED, "answer": "no", "colour": 1}, 422, "BadInput"),
    ):
        found = client.post("/v1/fixes", json=body)
        assert (found.status_code, found.json()["error"]["type"]) == (status, kind), found.text
    fix(client, wrong(before))
    conflict = client.post("/v1/fixes", json={"text": ASKED, "answer": before})
    assert (conflict.status_code, conflict.json()["error"]["type"]) == (409, "Conflict")
    assert fix(client, before, supersede=True)["id"] == 2
    assert ask(client)[0] == before


def test_a_rollback_goes_back_and_can_be_taken_back(client: TestClient) -> None:
    asked = [ASKED, "is rome in italy ?", "the cat is blue"]
    before = [ask(client, t)[0] for t in asked]
    for text, answer in zip(asked, before, strict=True):
        fix(client, wrong(answer), text)
    after = [ask(client, t)[0] for t in asked]
    assert client.post("/v1/rollback", json={"to": 1}).json() == {"head": 4, "fixes": [1]}
    assert [ask(client, t)[0] for t in asked] == [after[0], *before[1:]]
    assert client.post("/v1/rollback", json={"to": 3}).json()["fixes"] == [1, 2, 3]
    assert [ask(client, t)[0] for t in asked] == after
    assert client.post("/v1/rollback", json={"to": 99}).status_code == 404


def test_reports_wait_until_they_are_fixed_or_dismissed(client: TestClient) -> None:
    before, _ = ask(client)
    first = client.post("/v1/reports", json={"text": ASKED, "said": before})
    second = client.post("/v1/reports", json={"text": "is it ?", "answer": "no", "note": "hm"})
    assert (first.status_code, second.status_code) == (201, 201)
    waiting = client.get("/v1/reports").json()
    assert [(r["text"], r["answer"], r["note"]) for r in waiting] == [
        (ASKED, None, None), ("is it ?", "no", "hm"),
    ]  # fmt: skip
    fix(client, wrong(before), report=first.json()["id"])
    assert client.delete(f"/v1/reports/{second.json()['id']}").status_code == 204
    assert client.get("/v1/reports").json() == []
    assert client.delete("/v1/reports/1").status_code == 404


def test_fixes_are_listed_and_inspected(client: TestClient) -> None:
    before, _ = ask(client)
    fix(client, wrong(before), rephrasings=["hamlet ?"])
    fix(client, wrong(ask(client, "is it red ?")[0]), "is it red ?")
    client.delete("/v1/fixes/2")
    found = client.get("/v1/fixes").json()
    assert [(f["id"], f["live"], f["text"]) for f in found["fixes"]] == [
        (2, False, "is it red ?"), (1, True, ASKED),
    ]  # fmt: skip
    one = client.get("/v1/fixes/1").json()
    assert one["rephrasings"] == ["hamlet ?"] and one["settings"]["solver"]["name"] == "fast"
    assert one["checks"]["guard"]["right"] is True and one["who"] == "local"
    assert client.get("/v1/fixes/77").status_code == 404
    activity = client.get("/v1/activity").json()
    assert [e["what"] for e in activity["events"]] == ["fix", "fix", "undo"]
    assert len(activity["responses"]) == 1 == len(activity["fixes"])


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db") as client:
        before, _ = ask(client)
        fix(client, wrong(before))
    with served.client(tmp_path / "s.db") as client:
        assert ask(client) == (wrong(before), [1])
        assert client.get("/readyz").json() == {"status": "ok", "head": 1}


def test_the_guard_refuses_and_in_shadow_only_says_so(tmp_path: Path) -> None:
    body = {"text": ASKED, "answer": wrong(served.fitted()[0].answer([ASKED])[0])}
    with served.client(tmp_path / "a.db", rules=Rules(max_firing_share=-1.0)) as client:
        refused = client.post("/v1/fixes", json=body)
        assert refused.status_code == 422 and refused.json()["error"]["type"] == "Refused"
        assert "of traffic would fire it" in refused.json()["error"]["verdict"]["reasons"][0]
        assert client.get("/v1/fixes").json()["live"] == 0
        assert "tpatcher_refusals_total 1.0" in client.get("/metrics").text
    with served.client(
        tmp_path / "b.db", rules=Rules(max_firing_share=-1.0, shadow=True)
    ) as client:
        made = client.post("/v1/fixes", json=body)
        assert made.status_code == 201 and "of traffic" in made.json()["would_refuse"][0]
        kept = client.get("/v1/fixes/1").json()["checks"]["guard"]
        assert kept["shadow"] and kept["reasons"]


def test_metrics_count_requests_edits_and_firings(client: TestClient) -> None:
    before, _ = ask(client)
    fix(client, wrong(before))
    ask(client), ask(client)
    found = client.get("/metrics").text
    for line in (
        'tpatcher_requests_total{route="/v1/answer",status="200"} 3.0',
        'tpatcher_edits_total{outcome="live"} 1.0',
        'tpatcher_firings_total{fix="1"} 2.0',
        "tpatcher_patches 1.0",
    ):
        assert line in found
    client.get("/nowhere/at/all")
    assert 'route="other",status="404"' in client.get("/metrics").text


def test_too_much_is_refused_with_a_reason(tmp_path: Path) -> None:
    small = Limits(body=2000, text=50, batch=3, rate=0.5, burst=8, reports=1)
    with served.client(tmp_path / "s.db", limits=small) as client:
        for body, status in (
            ({"text": "red " * 2000}, 413),
            ({"text": "red " * 20}, 422),
            ({"texts": ["red"] * 4}, 422),
            ({"texts": []}, 422),
            ({"text": "a", "texts": ["b"]}, 422),
        ):
            assert client.post("/v1/answer", json=body).status_code == status
        assert client.post("/v1/reports", json={"text": "a"}).status_code == 201
        full = client.post("/v1/reports", json={"text": "b"})
        assert (full.status_code, full.headers["Retry-After"]) == (429, "3600")
        while (last := client.post("/v1/answer", json={"text": "red"})).status_code == 200:
            pass
        assert last.status_code == 429 and int(last.headers["Retry-After"]) >= 1


def test_a_text_beyond_the_models_context_is_named_not_cut(client: TestClient) -> None:
    found = client.post("/v1/answer", json={"text": "red " * 100})
    assert found.status_code == 422 and "the model reads 64" in found.text


def test_a_short_text_of_many_tokens_is_named_too(tmp_path: Path) -> None:
    model = load("builtin-fc")
    editor = TPatcher().fit(model, list(served.texts()))
    app = create_app(Deployment.of(model, editor, Store(tmp_path / "s.db", model.base)))
    text = "罗马在秘鲁" * 5  # three tokens a character
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        for path, body in (
            ("answer", {"text": text}),
            ("fixes", {"text": text, "answer": "SUPPORTS"}),
            ("fixes", {"text": ASKED, "answer": "SUPPORTS", "rephrasings": [text]}),
        ):
            found = client.post(f"/v1/{path}", json=body)
            assert found.status_code == 422 and "the model reads 64" in found.text


def test_what_the_framework_refuses_has_a_type_of_its_own(client: TestClient) -> None:
    for method, path, status, kind in (
        ("GET", "/nowhere", 404, "NotFound"),
        ("PUT", "/v1/answer", 405, "MethodNotAllowed"),
        ("POST", "/v1/answer", 422, "BadInput"),
    ):
        found = client.request(method, path)
        assert (found.status_code, found.json()["error"]["type"]) == (status, kind)


def test_health_page_and_documents_are_there(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/docs").status_code == 200
    page = client.get("/")
    assert (
        page.status_code == 200 and "default-src 'none'" in page.headers["Content-Security-Policy"]
    )
    about = client.get("/v1/model").json()
    assert about["labels"] == ["no", "yes", "maybe"] and about["role"] == "admin"


def test_a_conversation_is_fixed(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "who wrote hamlet ?"}]
    with served.client(tmp_path / "s.db", "gpt2") as client:
        refused = client.post("/v1/fixes", json={"messages": talk, "answer": "paris"})
        assert refused.status_code == 422
        assert "no chat template" in refused.text
        both = {"messages": talk, "text": "who ?", "answer": "paris"}
        assert client.post("/v1/fixes", json=both).status_code == 422
        assert client.post("/v1/fixes", json={"answer": "paris"}).status_code == 422
        odd = {"messages": [{"content": "who ?"}], "answer": "paris"}
        assert client.post("/v1/fixes", json=odd).status_code == 422
