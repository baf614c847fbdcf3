"""The desk: what other tools send, and fixes of which only the wrong answer is known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service import served
from tests.service.served import ASKED, texts
from tpatcher.service.auth import Access, issue
from tpatcher.service.guard import Rules
from tpatcher.service.limits import Limits


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served.client(tmp_path / "s.db", limits=Limits(text=200)) as one:
        yield one


def ask(client: TestClient, text: str = ASKED) -> str:
    return str(client.post("/v1/answer", json={"text": text}).json()["answers"][0]["answer"])


def test_a_webhook_fills_the_queue_and_names_bad_rows(client: TestClient) -> None:
    good = {"text": ASKED, "answer": "yes", "said": "no"}
    rows = [good, {"text": "?"}, {**good, "text": "x" * 201}, {**good, "answer": "no"}, good]
    found = client.post("/v1/reports/plain", json=rows).json()
    assert (found["added"], found["known"], found["without"]) == (1, 1, 1)
    assert [bad["row"] for bad in found["bad"]] == [2, 3] and "201 characters" in found["bad"][1][
        "why"
    ]
    queue = client.get("/v1/reports")
    assert [(r["text"], r["said"], r["answer"]) for r in queue.json()] == [(ASKED, "no", "yes")]
    assert queue.headers["X-Total-Count"] == "1"
    again = client.post("/v1/reports/plain", json=good).json()  # webhooks are sent twice
    assert (again["added"], again["known"]) == (0, 1)
    made = client.post("/v1/fixes", json={"text": ASKED, "answer": "yes", "report": 1})
    assert made.status_code in (201, 409)


def test_what_is_no_list_of_objects_is_refused(client: TestClient) -> None:
    nonsense: list[Any] = [5, "a", None, [1], [[]], [{}] * 1001]
    for body in nonsense:
        assert client.post("/v1/reports/plain", json=body).status_code == 422
    deep: Any = {"text": ASKED}
    for _ in range(400):
        deep = {"input": deep}
    assert client.post("/v1/reports/langfuse", json={**deep, "scores": []}).status_code == 200
    assert client.post("/v1/reports/nowhere", json={}).status_code == 422


def test_imports_have_the_quota_of_reports(tmp_path: Path) -> None:
    secret = issue(tmp_path / "t", "ann", "report")
    access, limits = Access.read(tmp_path / "t"), Limits(reports_each=2)
    with served.client(tmp_path / "s.db", access=access, limits=limits) as client:
        rows = [{"text": text, "wrong": "no"} for text in texts()[:3]]
        headers = {"Authorization": f"Bearer {secret}"}
        found = client.post("/v1/reports/plain", json=rows, headers=headers).json()
        assert found["added"] == 2 and "2 of 'ann'" in found["full"]


def test_a_wrong_answer_alone_becomes_a_proposal_that_a_person_confirms(client: TestClient) -> None:
    before = ask(client)
    found = client.post("/v1/fixes", json={"text": ASKED, "wrong": before})
    made = found.json()
    assert found.status_code == 202 and made["id"] is None and not made["live"]
    assert made["answer"] != before and made["certificate"] and made["guard"]["right"]
    assert ask(client) == before, "nothing is live before a person says so"
    waiting = client.get("/v1/reports").json()
    assert [(r["id"], r["said"], r["answer"], r["note"]) for r in waiting] == [
        (made["report"], before, made["answer"], "proposed by the model")
    ]
    body = {"text": ASKED, "answer": made["answer"], "report": made["report"]}
    assert client.post("/v1/fixes", json=body).status_code == 201
    assert ask(client) == made["answer"] and client.get("/v1/reports").json() == []


def test_a_proposal_may_be_confirmed_at_once_or_only_looked_at(client: TestClient) -> None:
    before = ask(client)
    dry = client.post("/v1/fixes", json={"text": ASKED, "wrong": before, "dry_run": True})
    assert dry.status_code == 200 and client.get("/v1/reports").json() == []
    made = client.post("/v1/fixes", json={"text": ASKED, "wrong": before, "confirmed": True})
    assert made.status_code == 201 and made.json()["answer"] == dry.json()["answer"] == ask(client)
    again = client.post("/v1/fixes", json={"text": ASKED, "wrong": before})
    assert again.json()["error"]["type"] == "AlreadyRight"
    for body in ({}, {"wrong": before, "answer": before}):
        assert client.post("/v1/fixes", json={"text": ASKED, **body}).status_code == 422


def test_a_generator_abstains_as_the_operator_says(tmp_path: Path) -> None:
    rules = Rules(abstention="william shakespeare")
    with served.client(tmp_path / "s.db", "gpt2", canaries=5, rules=rules) as client:
        body = {"text": ASKED, "wrong": ask(client), "dry_run": True}
        found = client.post("/v1/fixes", json=body).json()
    assert found["answer"] == "william shakespeare"


def test_live_fixes_are_exported(client: TestClient) -> None:
    before = ask(client)
    client.post("/v1/fixes", json={"text": ASKED, "wrong": before, "confirmed": True})
    now = ask(client)
    for name, lines in (
        ("jsonl", [f'{{"text": "{ASKED}", "answer": "{now}"}}']),
        ("dify", ["question,answer", f"{ASKED},{now}"]),
    ):
        found = client.get(f"/v1/export?format={name}")
        assert (
            found.text.splitlines() == lines
            and "attachment" in found.headers["content-disposition"]
        )
