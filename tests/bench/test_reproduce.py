"""`tpatcher reproduce` as a researcher types it."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import tiny
from tests.test_cli import tpatcher
from tpatcher.bench import estimate, reproduce
from tpatcher.bench.experiments import TABLES, plan
from tpatcher.bench.reproduce import tasks_of, works
from tpatcher.bench.scale import FULL, SMALL
from tpatcher.errors import BadInput


def test_dry_run_lists_the_jobs_and_runs_none(tmp_path: Path) -> None:
    out = tpatcher("reproduce", "table1", "--dry-run", "--out", tmp_path / "out")
    assert out.exit_code == 0, out.output
    assert "builtin-qa.ft-all-kl.1of2" in out.output
    assert "fit.builtin-fc.mend" in out.output
    assert "left on one core" in out.output
    assert "4,000 memory examples" in out.output
    assert not (tmp_path / "out").exists()


def test_rows_can_be_left_out(tmp_path: Path) -> None:
    words = ["reproduce", "table1", "--dry-run", "--out", tmp_path / "out"]
    out = tpatcher(*words, "--skip", "mend", "--skip", "ft-all")
    assert out.exit_code == 0, out.output
    assert "mend" not in out.output and "ft-all." not in out.output
    assert "builtin-qa.ft-all-kl.1of2" in out.output
    wrong = tpatcher(*words, "--skip", "ft")
    assert "Unknown row 'ft'" in str(wrong.exception)


def test_both_tasks_end_to_end_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tpatcher.bench.experiments.BETAS", ()
    )  # they train as the paper does: slowly
    tasks = [tiny.task(tmp_path, "bert"), tiny.task(tmp_path, "bart")]
    out = tmp_path / "out"
    words = ["reproduce", "frontier", "--scale", "small", "--edits", 1, "--out", out]
    for task in tasks:
        words += ["--data", task.path, "--model", task.model]
    first = tpatcher(*words)
    assert first.exit_code == 0, (first.output, first.exception)
    assert "Beyond the paper" in first.output
    assert "· The fast preset is not behind" in first.output
    assert (out / "tables" / "frontier.csv").read_text().count("\n") == 1 + 2 * 6 * 2
    made = {p: p.stat().st_mtime_ns for p in out.glob("jobs/*/scores.json")}
    assert len(made) == 2 * 6
    assert tpatcher(*words).exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in out.glob("jobs/*/scores.json")} == made


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("tpatcher.bench.runner.run", interrupted)
    console = Console(record=True, quiet=False, file=(tmp_path / "said").open("w"))
    done = reproduce.reproduce(
        console, ["table6"], [tiny.task(tmp_path, "bert")], tiny.SCALE, tmp_path / "out", "again!"
    )
    console.file.close()
    assert not done
    assert "again!" in (tmp_path / "said").read_text()


def test_what_data_needs() -> None:
    with pytest.raises(BadInput, match="leave --model"):
        tasks_of(["builtin"], ["x"], [])
    with pytest.raises(BadInput, match="as many --model"):
        tasks_of(["fever"], [], [])
    with pytest.raises(BadInput, match="needs --path"):
        tasks_of(["fever"], ["builtin-fc"], [])


def test_the_papers_scale_is_the_papers() -> None:
    tasks = tasks_of(["builtin"], [], [])
    planned = plan(TABLES, tasks, FULL)
    fc, qa = tasks
    job = planned["table1"][qa]["ft-all-kl"][7]
    assert (job.folders, job.folder, job.edits, job.tr, job.memory) == (20, 7, None, 10_000, 40_000)
    assert job.fields == {"learning_rate": 1e-5, "kl_batch": 512}
    assert planned["table1"][fc]["mend"][0].fields == {}
    assert len(planned["table1"][fc]["t-patcher"]) == 20
    assert list(planned["table2"]) == [qa]
    assert [r for r in planned["figure6"][qa] if "memory" in r] == [
        "memory:5000", "memory:10000", "memory:20000", "memory:40000",
    ]  # fmt: skip
    full, small = (sum(map(estimate.seconds, works(plan(TABLES, tasks, s)))) for s in (FULL, SMALL))
    assert full > 30 * small > 0


def test_rows_that_are_the_same_job_are_run_once() -> None:
    tasks = tasks_of(["builtin"], [], [])
    planned = plan(TABLES, tasks, SMALL)
    table1, frontier = planned["table1"][tasks[1]], planned["frontier"][tasks[1]]
    assert frontier["t-patcher-fast"] == table1["t-patcher-fast"][:1]
    assert frontier["beta:-3.0"] == planned["figure6"][tasks[1]]["layer:-1"]
    assert planned["figure6"][tasks[1]]["memory:4000"] == table1["t-patcher"][:1]
    keys = [w.key for w in works(planned)]
    assert len(keys) == len(set(keys))
    assert json.dumps(table1["ke"][0].to_json())
