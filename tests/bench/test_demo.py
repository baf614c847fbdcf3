"""`tpatcher demo`, with a few mistakes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import tpatcher
from tpatcher.bench import demo


def test_the_demo_fixes_both_tasks_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(demo.SCALE, n_train=100, n_test=100, memory_size=1_000)
    monkeypatch.setattr(demo, "SCALE", few)
    report, numbers = tmp_path / "report.html", tmp_path / "numbers.json"
    out = tpatcher("demo", "--edits", 2, "--report", report, "--json", numbers)
    assert out.exit_code == 0, (out.output, out.exception)
    assert "✓ T-Patcher fixes every mistake" in out.output
    found = json.loads(numbers.read_bytes())
    assert list(found) == ["builtin-fc", "builtin-qa"]
    for rows in found.values():
        assert list(rows) == ["t-patcher-fast", "ft-all"]
        assert rows["t-patcher-fast"]["SR"] == 1.0
        assert rows["t-patcher-fast"]["edits"] == 2
        names = ["SR", "GR", "ER", "TrainR", "TestR", "edits", "seconds_per_edit"]
        assert list(rows["ft-all"]) == names
    html = report.read_text()
    assert html.count("<svg role=") == 4  # curves and a heat map of each task
    assert html.count("What T-Patcher, max-margin solver fixed") == 2
    assert "Claims of our own: 0 do not hold, 2 hold." in html
    assert "Claims of the paper" not in html
    assert "tpatcher demo --edits 2" in html
    assert {file.name for file in tmp_path.iterdir()} == {"report.html", "numbers.json"}


def test_a_demo_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[bool]()

    def stopped(console: object, planned: object, out: Path, *more: object) -> None:
        done.append((out / "job").exists())
        out.mkdir(exist_ok=True)
        (out / "job").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_plan", stopped)
    for _ in range(2):
        tpatcher("demo", "--report", tmp_path / "report.html")
    assert done == [False, True]
