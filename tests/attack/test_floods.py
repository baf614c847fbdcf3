"""Too much of everything: the service refuses it in time, and others do not notice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.attack.target import Target
from tests.service.served import ASKED, texts, until, wrong

LISTS = {
    "/v1/answer": ("texts", {}),
    "/v1/fixes": ("also", {"text": "a", "answer": "b"}),
    "/v1/chat/completions": ("messages", {}),
    "/v1/completions": ("prompt", {}),
}
MEMORY = 150 << 20  # bytes that a request may add for a while; it was 430 MB


@pytest.mark.parametrize("path", LISTS)
def test_half_a_million_wrong_items_are_one_error(target: Target, path: str) -> None:
    name, rest = LISTS[path]
    before = target.resident
    found = target.call("fix", "POST", path, {**rest, name: [1] * 300_000})
    assert found.status_code == 422 and len(found.text) < 2000
    assert target.resident - before < MEMORY


def test_an_edit_that_takes_long_keeps_no_rollback_waiting(target: Target) -> None:
    body: dict[str, Any] = {"text": ASKED, "answer": wrong(target.say(ASKED)), "dry_run": True}
    body["rephrasings"] = list(texts()[:16])
    assert (
        target.call("fix", "POST", "/v1/fixes", {**body, "rephrasings": texts()[:17]}).status_code
        == 422
    )
    with ThreadPoolExecutor(1) as pool:
        heavy = pool.submit(target.call, "fix", "POST", "/v1/fixes", body, timeout=120)
        for _ in range(5):
            assert target.call("admin", "POST", "/v1/rollback", {"to": 0}).status_code == 200
            assert target.say(ASKED)
        assert heavy.result().status_code in (200, 422)  # done, refused or given up


def test_who_fills_the_queue_of_changes_keeps_no_admin_from_rolling_back(target: Target) -> None:
    calm, seen = threading.Event(), set()

    def flood() -> None:
        while not calm.is_set():
            body = {"text": ASKED, "answer": "maybe", "dry_run": True}
            seen.add(target.call("fix", "POST", "/v1/fixes", body).status_code)

    threads = [threading.Thread(target=flood) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: 429 in seen)
        for _ in range(10):
            assert target.call("admin", "POST", "/v1/rollback", {"to": 0}).status_code == 200
    finally:
        calm.set()
        for thread in threads:
            thread.join()
    assert seen <= {200, 409, 422, 429}


def test_slow_connections_keep_nobody_out_and_fill_no_log(target: Target) -> None:
    half = b"POST /v1/answer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000
    with ExitStack() as stack:
        for n in range(300):
            stack.enter_context(target.raw(half if n % 2 else half[:30]))
        for _ in range(20):
            assert target.say(ASKED)
    assert len(target.said()) < 100_000


def test_reports_have_a_quota_and_can_be_dismissed_at_once(target: Target) -> None:
    rows = [{"text": f"text {n}", "wrong": "no"} for n in range(1000)]
    assert target.call("report", "POST", "/v1/reports/plain", rows).json()["added"] == 1000
    assert target.call("report", "POST", "/v1/reports", {"text": "more"}).status_code == 429
    assert target.call("fix", "POST", "/v1/reports", {"text": "others"}).status_code == 201
    gone = target.call("fix", "DELETE", "/v1/reports?who=report").json()
    assert gone == {"dismissed": 1000}


def test_harm_stays_local_and_one_rollback_takes_it_back(target: Target) -> None:
    truths, others = texts()[:12], texts()[12:76]
    before = {text: target.say(text) for text in truths}

    def answers() -> list[str]:
        found = target.call("answer", "POST", "/v1/answer", {"texts": others}).json()
        return [one["answer"] for one in found["answers"]]

    kept = answers()
    for text in truths:
        body = {"text": text, "answer": wrong(before[text])}
        assert target.call("fix", "POST", "/v1/fixes", body).status_code in (201, 409, 422)
    assert answers() == kept
    assert target.call("admin", "POST", "/v1/rollback", {"to": 0}).status_code == 200
    assert {text: target.say(text) for text in truths} == before
