"""Tokens, roles, and what is refused before any of that."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service import served
from tests.service.served import ASKED
from tpatcher.errors import BadInput, Denied
from tpatcher.service.auth import ROLES, Access, Role, is_loopback, issue

CALLS: list[tuple[Role, str, str, dict[str, object] | None]] = [
    ("answer", "POST", "/v1/answer", {"text": ASKED}),
    ("answer", "GET", "/metrics", None),
    ("report", "POST", "/v1/reports", {"text": ASKED}),
    ("report", "GET", "/v1/fixes", None),
    ("fix", "GET", "/v1/reports", None),
    ("fix", "POST", "/v1/fixes", {"text": ASKED, "answer": "no", "dry_run": True}),
    ("fix", "DELETE", "/v1/fixes/9", None),
    ("admin", "POST", "/v1/rollback", {"to": 0}),
]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Role, str]]:
    file = tmp_path_factory.mktemp("tokens") / "tokens.jsonl"
    return file, {role: issue(file, f"the {role}er", role) for role in ROLES}


@pytest.fixture(scope="module")
def client(
    secrets: tuple[Path, dict[Role, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    url = tmp_path_factory.mktemp("s") / "s.db"
    with served.client(url, access=Access.read(secrets[0])) as one:
        yield one


@pytest.mark.parametrize("needed, method, path, body", CALLS)
def test_each_role_may_do_its_part_and_no_more(
    client: TestClient, secrets: tuple[Path, dict[Role, str]], needed: Role, method: str,
    path: str, body: dict[str, object] | None,
) -> None:  # fmt: skip
    for role, secret in secrets[1].items():
        found = client.request(
            method, path, json=body, headers={"Authorization": f"Bearer {secret}"}
        )
        allowed = ROLES.index(role) >= ROLES.index(needed)
        assert (found.status_code == 403) != allowed, (role, path, found.text)
        assert found.status_code != 401


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic eDp5", "Bearer é\x00"])
def test_without_a_known_token_nothing_is_answered(client: TestClient, header: str | None) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else None
    found = client.post("/v1/answer", json={"text": ASKED}, headers=headers)  # type: ignore[arg-type]
    assert found.status_code == 401 and found.headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/healthz").status_code == 200


def test_only_hashes_are_kept_and_the_log_names_who_did_it(
    client: TestClient, secrets: tuple[Path, dict[Role, str]]
) -> None:
    file, known = secrets
    assert not any(secret in file.read_text() for secret in known.values())
    assert file.stat().st_mode & 0o077 == 0
    given = {"Authorization": f"Bearer {known['admin']}"}
    client.post("/v1/rollback", json={"to": 0}, headers=given)
    events = client.get("/v1/activity", headers=given).json()["events"]
    assert (events[-1]["who"], events[-1]["what"]) == ("the adminer", "rollback")


def test_a_token_needs_a_name_of_its_own_and_a_role(tmp_path: Path) -> None:
    file = tmp_path / "t"
    issue(file, "ann", "fix")
    for name, role in (("ann", "fix"), ("bob", "king"), ("", "fix"), ("a\nb", "fix")):
        with pytest.raises(BadInput):
            issue(file, name, role)  # type: ignore[arg-type]
    for bad in ("", "{}", "nonsense", json.dumps({"name": "x", "role": "fix", "sha256": "12"})):
        file.write_text(bad)
        with pytest.raises(BadInput):
            Access.read(file)
    with pytest.raises(BadInput, match="no file of tokens"):
        Access.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "host, local",
    [("127.0.0.1", True), ("localhost:8000", True), ("[::1]:80", True), ("::1", True),
     ("0.0.0.0", False), ("evil.example", False), ("127.0.0.1.evil.example", False)],
)  # fmt: skip
def test_what_counts_as_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_the_file_of_tokens_is_never_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, real = list[int](), os.replace

    def replace(made: str, path: Path) -> None:
        modes.append(Path(made).stat().st_mode & 0o777)
        real(made, path)

    monkeypatch.setattr("os.replace", replace)
    issue(tmp_path / "t", "ann", "fix")
    assert modes == [0o600]


def test_a_line_that_is_taken_out_or_added_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "t"
    ann, bob = issue(file, "ann", "fix"), issue(file, "bob", "answer")
    access = Access.read(file)
    assert access.caller(bob).name == "bob"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0])
    with pytest.raises(Denied):
        access.caller(bob)
    file.write_text("nonsense")  # nobody is let in or out by accident
    assert access.caller(ann).name == "ann"
    file.unlink()
    assert access.caller(ann).name == "ann"
    eve = issue(file, "eve", "admin")
    assert access.caller(eve).role == "admin"
    with pytest.raises(Denied):
        access.caller(ann)
