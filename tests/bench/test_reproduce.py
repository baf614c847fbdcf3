"""`tpatcher reproduce` as a researcher types it."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import tiny
from tests.helpers import tpatcher
from tpatcher.bench import reproduce, rows
from tpatcher.bench.experiments import ALL, TABLES
from tpatcher.bench.runner import works
from tpatcher.bench.scale import FULL, SMALL, Scale
from tpatcher.bench.setup import builtin_setups, setups
from tpatcher.bench.table import Planned, plan
from tpatcher.errors import BadInput


def test_dry_run_lists_the_jobs_and_runs_none(tmp_path: Path) -> None:
    out = tpatcher("reproduce", "table1", "--dry-run", "--out", tmp_path / "out")
    assert out.exit_code == 0, out.output
    assert "builtin-qa.ft-all-kl.1of2" in out.output
    assert "fit.builtin-fc.mend" in out.output
    assert "left" in out.output
    assert "4,000 memory examples" in out.output
    assert not (tmp_path / "out").exists()


def test_rows_can_be_left_out(tmp_path: Path) -> None:
    words = ["reproduce", "table1", "--dry-run", "--out", tmp_path / "out"]
    out = tpatcher(*words, "--skip", "mend", "--skip", "ft-all")
    assert out.exit_code == 0, out.output
    assert "mend" not in out.output and "ft-all." not in out.output
    assert "builtin-qa.ft-all-kl.1of2" in out.output
    wrong = tpatcher(*words, "--skip", "ft")
    assert "unknown row 'ft'" in str(wrong.exception)


def test_both_tasks_end_to_end_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tpatcher.bench.experiments.BETAS", ()
    )  # they train as the paper does: slowly
    on = [tiny.setup(tmp_path, "bert"), tiny.setup(tmp_path, "bart")]
    out = tmp_path / "out"
    words = ["reproduce", "frontier", "--scale", "small", "--edits", 1, "--out", out]
    for setup in on:
        words += ["--data", setup.path, "--model", setup.model]
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
        console,
        [TABLES["table6"]],
        [tiny.setup(tmp_path, "bert")],
        tiny.SCALE,
        tmp_path / "out",
        "again!",
    )
    console.file.close()
    assert not done
    assert "again!" in (tmp_path / "said").read_text()


def test_what_data_needs() -> None:
    with pytest.raises(BadInput, match="give no model"):
        setups(["builtin"], ["x"], [])
    with pytest.raises(BadInput, match="as many models"):
        setups(["fever"], [], [])
    with pytest.raises(BadInput, match="needs a path"):
        setups(["fever"], ["builtin-fc"], [])


def planned(scale: Scale) -> dict[tuple[str, str], Planned]:
    return {(p.table.name, p.setup.kind): p for p in plan(ALL, builtin_setups(), scale)}


def test_the_papers_scale_is_the_papers() -> None:
    full = planned(FULL)
    table1 = full["table1", "qa"].jobs
    job = table1[rows.FT_ALL_KL][7]
    assert (job.folders, job.folder, job.edits) == (20, 7, None)
    assert (job.n_train, job.memory_size) == (10_000, 40_000)
    assert job.fields == {"learning_rate": 1e-5, "kl_batch": 512}
    assert table1[rows.MEND][0].fields == {}
    assert len(table1[rows.T_PATCHER]) == 20
    assert ("table2", "fc") not in full
    sizes = [r.value for r in full["figure6", "qa"].jobs if r.sweep == rows.MEMORY]
    assert sizes == [5_000, 10_000, 20_000, 40_000]


def test_rows_that_are_the_same_job_are_run_once() -> None:
    small = planned(SMALL)
    table1, frontier = small["table1", "qa"].jobs, small["frontier", "qa"].jobs
    figure6 = small["figure6", "qa"].jobs
    assert frontier[rows.FAST] == table1[rows.FAST][:1]
    assert frontier[rows.beta(-3.0)] == figure6[rows.layer(-1)]
    assert figure6[rows.memory(4000)] == table1[rows.T_PATCHER][:1]
    keys = [work.key for work in works(small.values())]
    assert len(keys) == len(set(keys))
    assert json.dumps(table1[rows.KE][0].to_json())
