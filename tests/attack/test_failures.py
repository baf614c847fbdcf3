"""Kills, damage and replicas that race: what was acknowledged is there."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests import postgres as pg
from tests.attack.target import Target
from tests.service.served import ASKED, texts, until, wrong


def test_kills_in_the_middle_of_fixes_lose_nothing(saved: Path, tmp_path: Path) -> None:
    acknowledged: dict[int, str] = {}
    for turn in range(3):
        one = Target(saved, str(tmp_path / "s.db")).ready()

        def fixer(mine: list[str], one: Target = one) -> None:
            for text in mine:
                try:
                    body = {"text": text, "answer": wrong(one.say(text))}
                    found = one.call("admin", "POST", "/v1/fixes", body)
                except httpx.TransportError:
                    return
                if found.status_code == 201:
                    acknowledged[found.json()["id"]] = text

        todo = list(texts()[turn * 60 : turn * 60 + 60])
        threads = [threading.Thread(target=fixer, args=(todo[n::3],)) for n in range(3)]
        for thread in threads:
            thread.start()
        before = len(acknowledged)
        until(lambda before=before: len(acknowledged) > before + 2)  # type: ignore[misc]
        one.process.kill()
        for thread in threads:
            thread.join()
        one.stop()
    last = Target(saved, str(tmp_path / "s.db")).ready()
    try:
        found = last.call("admin", "GET", "/v1/fixes?limit=1000").json()
        live = {fix["id"]: fix["text"] for fix in found["fixes"] if fix["live"]}
        assert acknowledged.items() <= live.items() and found["damaged"] == []
    finally:
        last.stop()


def test_one_damaged_fix_stops_nothing_and_can_be_taken_out(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    one = Target(saved, str(file)).ready()
    said = {text: one.say(text) for text in texts()[:3]}
    for text, answer in said.items():
        one.call("admin", "POST", "/v1/fixes", {"text": text, "answer": wrong(answer)})
    one.stop()
    with closing(sqlite3.connect(file)) as base:
        blob = bytearray(base.execute("SELECT tensors FROM patch WHERE id = 2").fetchone()[0])
        blob[-5] ^= 1
        base.execute("UPDATE patch SET tensors = ? WHERE id = 2", (bytes(blob),))
        base.commit()
    again = Target(saved, str(file))
    try:
        until(lambda: "damaged" in _readiness(again))
        answers = [again.say(text) for text in said]
        assert [a != b for a, b in zip(answers, said.values(), strict=True)] == [True, False, True]
        assert again.call("admin", "DELETE", "/v1/fixes/2").status_code == 200
        until(lambda: _readiness(again) == "ready")
    finally:
        again.stop()


def _readiness(one: Target) -> str:
    try:
        found = one.http.get("/readyz")
    except httpx.TransportError:
        return "away"
    return "ready" if found.status_code == 200 else found.text


@pytest.fixture
def two(saved: Path, postgres: pg.Server) -> Iterator[list[Target]]:
    url = postgres.url()
    found = [Target(saved, url) for _ in range(2)]
    try:
        yield [one.ready() for one in found]
    finally:
        for one in found:
            one.stop()


def test_replicas_that_race_end_equal(two: list[Target]) -> None:
    said = two[0].say(ASKED)
    got: list[tuple[int, str]] = []

    def at_once(bodies: list[dict[str, str]], keys: list[str]) -> None:
        def send(n: int) -> None:
            headers = {"Idempotency-Key": keys[n]}
            found = two[n % 2].call("admin", "POST", "/v1/fixes", bodies[n], headers=headers)
            got.append((found.status_code, found.text))

        threads = [threading.Thread(target=send, args=(n,)) for n in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once([{"text": ASKED, "answer": wrong(said)}] * 4, ["same"] * 4)
    assert sorted(status for status, _ in got) == [200, 200, 200, 201]
    got.clear()
    others = [label for label in ("no", "yes", "maybe") if label != two[0].say(texts()[0])]
    at_once([{"text": texts()[0], "answer": others[n % 2]} for n in range(4)], list("abcd"))
    assert sorted(status for status, _ in got) == [201, 409, 409, 409]
    lists = [one.call("admin", "GET", "/v1/fixes?live=true").json()["fixes"] for one in two]
    until(lambda: two[1].say(texts()[0]) == two[0].say(texts()[0]))
    assert [f["id"] for f in lists[0]] == [f["id"] for f in lists[1]]
