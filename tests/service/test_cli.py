"""The commands around the service, as a user types them, and the options that docs name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer.main
from typer.testing import CliRunner, Result

from tests.service import served
from tests.service.served import ASKED, until, wrong
from tpatcher import cli
from tpatcher.errors import BadInput, NotFound
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.service.auth import Access
from tpatcher.store.location import successor
from tpatcher.store.store import Store

RUN = "from tpatcher.cli import main; main()"


def tpatcher(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(w) for w in words])


def test_options_that_were_missing_are_there_and_shadow_says_what_it_does() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    options = {o: p for p in commands["serve"].params for o in p.opts}
    assert {"--share", "--drain"} <= {*options}  # the docs' options: tests/test_docs.py
    assert "every fix through" in options["--shadow"].help


def test_token_and_serve(tmp_path: Path) -> None:
    served.save(tmp_path)
    secret = tpatcher("token", tmp_path / "tokens", "ann", "fix").output.strip()
    assert Access.read(tmp_path / "tokens").caller(secret).role == "fix"
    port = served.free_port()
    options = {
        "--port": port,
        "--store": tmp_path / "s.db",
        "--traffic": tmp_path / "texts.txt",
        "--tokens": tmp_path / "tokens",
        "--flips": 5,
        "--share": 0.5,
        "--deadline": 60,
        "--fixes-a-day": 7,
        "--drain": 60,
        "--device": "cpu",
    }
    words = [str(word) for pair in options.items() for word in pair]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "serve", str(tmp_path / "model"), *words],
            stdout=log,
            stderr=log,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(ready)
        assert http.get("/v1/model").status_code == 401
        http.headers["Authorization"] = f"Bearer {secret}"
        answer = http.post("/v1/answer", json={"text": ASKED}).json()["answers"][0]["answer"]
        made = http.post("/v1/fixes", json={"text": ASKED, "answer": wrong(answer)})
        assert made.status_code == 201, made.text
        http.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


def test_a_consolidation_is_undone(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, url = tmp_path / "model", tmp_path / "s.db"
    base, (_, editor) = load(model), served.fitted()
    store = Store(url, base.base)
    store.append(editor.edit(base, Example(ASKED, wrong(base.answer([ASKED])[0]))))
    out = tpatcher(
        "consolidate", model, tmp_path / "new", "--store", url, "--retention", 0.5,
        "--traffic", tmp_path / "texts.txt",
    )  # fmt: skip
    assert out.exit_code == 0, out.output
    assert "learned 1 fixes" in " ".join(out.output.split())
    assert successor(store) is not None
    assert tpatcher("consolidate", model, "--store", url, "--undo").exit_code == 0
    assert successor(store) is None
    again = tpatcher("consolidate", model, "--store", url, "--undo")
    assert isinstance(again.exception, NotFound)
    store.close()


@pytest.mark.parametrize("words", [["new"], ["--undo"], ["new", "--store", "s.db", "--undo"], []])
def test_what_to_consolidate_must_be_said(words: list[str]) -> None:
    assert isinstance(tpatcher("consolidate", "builtin-fc", *words).exception, BadInput)
