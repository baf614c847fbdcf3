"""One damaged fix: the service starts, leaves it out, names it, and lets it be taken out."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service import served
from tests.service.served import until, wrong
from tests.store.made import patch, spoil
from tpatcher.store.store import Store

ASKED = [served.ASKED, "is rome in italy ?", "the cat is blue"]


def answers(client: TestClient) -> list[str]:
    found = client.post("/v1/answer", json={"texts": ASKED}).json()["answers"]
    return [one["answer"] for one in found]


def filled(url: Path) -> tuple[list[str], list[str]]:
    """A store of three fixes; what is answered without and with them."""
    with served.client(url) as client:
        before = answers(client)
        for text, answer in zip(ASKED, before, strict=True):
            made = client.post("/v1/fixes", json={"text": text, "answer": wrong(answer)})
            assert made.status_code == 201
        return before, answers(client)


def damage(url: Path, id: int) -> None:
    store = Store(url, served.fitted()[0].base)
    spoil(store, id)
    store.close()


def test_the_service_starts_without_it_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = tmp_path / "s.db"
    before, after = filled(url)
    damage(url, 2)
    with caplog.at_level(logging.ERROR, "tpatcher.service"), served.client(url) as client:
        assert answers(client) == [after[0], before[1], after[2]]
        assert "fix 2 is damaged and left out" in caplog.text
        listed = client.get("/v1/fixes").json()
        assert [(d["id"], "checksum differs" in d["why"]) for d in listed["damaged"]] == [(2, True)]
        assert [(f["id"], f["live"]) for f in listed["fixes"]] == [(3, True), (2, False), (1, True)]
        assert "tpatcher_damaged 1.0" in client.get("/metrics").text
        ready = client.get("/readyz")
        assert ready.status_code == 503 and "fix 2 is not what" in ready.text
        text = "is it red ?"
        said = client.post("/v1/answer", json={"text": text}).json()["answers"][0]["answer"]
        other = {"text": text, "answer": wrong(said)}
        assert client.post("/v1/fixes", json=other).status_code == 201  # others go on
        assert client.get("/readyz").status_code == 503
        assert client.delete("/v1/fixes/2").json() == {"id": 2, "no_longer_hold": []}
        assert client.get("/readyz").json() == {"status": "ok", "head": 5}
        assert client.get("/v1/fixes").json()["damaged"] == []
        assert answers(client) == [after[0], before[1], after[2]]


def test_a_rollback_takes_it_out_too(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    before, after = filled(url)
    damage(url, 2)
    with served.client(url) as client:
        assert client.post("/v1/rollback", json={"to": 1}).json() == {"head": 4, "fixes": [1]}
        assert client.get("/readyz").status_code == 200
        assert answers(client) == [after[0], *before[1:]]


def test_one_that_another_process_made_can_be_undone_here(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    _, after = filled(url)
    with served.client(url) as client:
        store = Store(url, served.fitted()[0].base)
        with store.writing() as connection:  # damaged before anybody can read it
            row = store._row(patch(9))
            row["tensors"] = b"nothing"
            store.add_entry(connection, "append", payload=row)
        store.close()
        until(lambda: client.get("/readyz").status_code == 503)
        assert answers(client) == after
        assert client.delete("/v1/fixes/4").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_patch_that_does_not_fit_the_model_is_left_out(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    _, after = filled(url)
    store = Store(url, served.fitted()[0].base)
    store.append(replace(patch(9), layer=-99))
    store.append(patch(8, d=7))
    store.close()
    with served.client(url) as client:
        assert answers(client) == after
        listed = client.get("/v1/fixes").json()
        assert [d["id"] for d in listed["damaged"]] == [4, 5]
        for id in (4, 5):
            assert client.delete(f"/v1/fixes/{id}").status_code == 200
        assert client.get("/readyz").status_code == 200
