"""What docs/service.md says is what the service does."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service import served
from tpatcher.models.loading import load
from tpatcher.service.serve import build

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_five_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "texts.txt").write_text("\n".join(f"Fact {i} is a fact of {i}." for i in range(99)))
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("curl ")]
    assert len(lines) == 5
    app = build(load("builtin-fc"), tmp_path / "s.db", traffic=tmp_path / "texts.txt")
    with served.listening(app) as address:
        found = []
        for line in lines:
            command = line.replace("localhost:8000", address)
            found.append(json.loads(subprocess.check_output(["bash", "-c", command])))
    before, fix, after, undone, again = found
    assert fix["id"] == 1 and undone["id"] == 1
    assert after["answers"][0]["answer"] == "SUPPORTS" and after["answers"][0]["fixes"] == [1]
    assert before == again and before["answers"][0]["answer"] == "REFUTES"


def test_every_route_is_in_the_table(tmp_path: Path) -> None:
    documented = PAGE.read_text()
    with served.client(tmp_path / "s.db") as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert [path for path in paths if f"{path}`" not in documented] == []
