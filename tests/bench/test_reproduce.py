"""`tpatcher reproduce` as a researcher types it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.bench import tiny
from tests.helpers import tpatcher
from tpatcher.bench import reproduce, rows, runner
from tpatcher.bench.context import Context
from tpatcher.bench.experiments import ALL, TABLES
from tpatcher.bench.report import tables as forms
from tpatcher.bench.runner import works
from tpatcher.bench.scale import FULL, SMALL, Scale
from tpatcher.bench.setup import builtin_setups, setups
from tpatcher.bench.table import FIRST, Planned, jobs, plan
from tpatcher.errors import BadInput


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run that does not measure anything."""
    monkeypatch.setattr(reproduce, "estimate", lambda todo, device: {w.key: 60.0 for w in todo})


@pytest.mark.usefixtures("unmeasured")
def test_dry_run_lists_the_jobs_and_runs_none(tmp_path: Path) -> None:
    out = tpatcher("reproduce", "table1", "--dry-run", "--out", tmp_path / "out")
    assert out.exit_code == 0, out.output
    assert "builtin-qa.ft-all-kl.1of2" in out.output
    assert "fit.builtin-fc.mend" in out.output
    assert "left" in out.output and "about 1 min" in out.output
    assert "4,000 memory examples" in out.output
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unmeasured")
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
    words += ["--skip", "t-patcher"]
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


def test_bad_rows_are_named_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = tiny.setup(tmp_path, "bert")
    assert on.path is not None
    with (on.path / "train.jsonl").open("a") as file:
        file.write('\n{"text": "no answer"}\nnot JSON\n')
    words = ["reproduce", "table6", "--data", on.path, "--model", on.model, "--out", tmp_path / "o"]
    monkeypatch.setattr(reproduce, "estimate", lambda *_: {})
    assert "train.jsonl:41" in str(tpatcher(*words, "--skip-bad", "--dry-run").output)
    with pytest.raises(BadInput, match=r"train.jsonl:41"):
        Context.open(jobs(rows.FAST, on, tiny.SCALE, FIRST)[0], tmp_path)
    [same] = setups([str(on.path)], [on.model], [], skip_bad=True)
    assert [row.partition(": ")[0][-2:] for row in same.skipped] == ["41", "42"]
    assert jobs(rows.FAST, same, tiny.SCALE, FIRST)[0].skip_bad
    monkeypatch.setattr(runner, "run", lambda *_: {})
    console = Console(file=io.StringIO(), width=200)
    reproduce.reproduce(console, [TABLES["table6"]], [same], tiny.SCALE, tmp_path / "o", "x")
    assert "2 bad rows are left out" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_failed_job_is_shown_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise RuntimeError("its weights are lost")

    monkeypatch.setattr("tpatcher.editors.finetune.FTLast.edit", lost)
    on, out = tiny.setup(tmp_path, "bert"), tmp_path / "out"
    console = Console(file=io.StringIO(), width=200)
    only = [rows.FT_LAST, rows.FAST, rows.CACHE]
    words = (console, [TABLES["table1"]], [on], tiny.SCALE, out, "again!")
    assert not reproduce.reproduce(*words, only=only)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("RuntimeError: its weights are lost") == 4  # as it happens, and at the end
    assert "2 jobs are left" in said
    assert len(list(out.glob("jobs/*/scores.json"))) == 4
    assert "in lost" in next(out.glob("jobs/*ft-last*/error.txt")).read_text()
    html = (out / "report.html").read_text()
    assert html.count("RuntimeError: its weights are lost") == 2


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
    for scale, batch in ((full, 512), (planned(SMALL), 32)):  # the KL patch has the scale's too
        patch = scale["table3", "qa"].jobs[rows.KL_PATCH][0]
        assert patch.new_editor().solver.kl_batch == batch  # type: ignore[attr-defined]
    assert len(table1[rows.T_PATCHER]) == 20
    assert ("table2", "fc") not in full
    sizes = [r.value for r in full["figure6", "qa"].jobs if r.sweep == rows.MEMORY]
    assert sizes == [5_000, 10_000, 20_000, 40_000]


def test_knobs_of_baselines_by_editor_and_dataset() -> None:
    knobs: dict[str, dict[str, Any]] = {"ke": {"released": "a"}, "ft-all": {"steps": 9}}
    knobs["builtin-qa.ke"] = {"released": "b"}
    full = planned(FULL.with_knobs(knobs))
    found = {kind: full["table1", kind].jobs for kind in ("fc", "qa")}
    assert found["fc"][rows.KE][3].fields == {"released": "a", "loops": 1}
    assert found["qa"][rows.KE_LOOP][3].fields == {"released": "b", "loops": 5}
    assert found["fc"][rows.FT_ALL][0].fields == {"learning_rate": 1e-5, "steps": 9}
    assert found["fc"][rows.MEND] == planned(FULL)["table1", "fc"].jobs[rows.MEND]
    assert "released" in FULL.with_knobs(knobs).about


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"zsre.kee": {}}', "unknown editor 'kee'. Did you mean 'ke'?"),
        ('{"ke": {"loop": 5}}', "unknown knob of ke 'loop'. Did you mean 'loops'?"),
        ('{"ke": 5}', "the knobs of ke are an object"),
        ('{"t-patcher": {"layer": -2}}', "the rows of t-patcher are its settings"),
    ],
)
def test_knobs_that_nobody_has(given: str, said: str) -> None:
    assert said in str(tpatcher("reproduce", "--dry-run", "--knobs", given).exception)
    assert tpatcher("reproduce", "--dry-run", "--knobs", given[:-1]).exit_code == 2
    assert tpatcher("sme", "x", "--data", "x", "--out", "x", "--knobs", "[]").exit_code == 2


def test_one_folder_is_the_whole_edit_set_in_every_table() -> None:
    one = planned(SMALL.with_streams(folders=1, edits="all"))
    tables = ("table1", "table3", "table4", "table7", "figure5", "figure7")
    found = {job for name in tables for job in map(str, one[name, "fc"].jobs[rows.T_PATCHER])}
    assert len(found) == 1
    [job] = one["table7", "fc"].jobs[rows.T_PATCHER]
    assert (job.folders, job.edits) == (0, None)
    five = planned(SMALL.with_streams(folders=5, edits=9, whole="all"))
    assert len(five["table1", "qa"].jobs[rows.SERAC]) == 5
    assert five["table5", "qa"].jobs[rows.SERAC] == five["table1", "qa"].jobs[rows.SERAC]
    assert five["table1", "qa"].jobs[rows.SERAC][1].edits == 9
    assert five["table2", "qa"].jobs[rows.KE_LOOP][0].edits is None


@pytest.mark.usefixtures("unmeasured")
def test_mistakes_are_a_number_or_all(tmp_path: Path) -> None:
    words = ["reproduce", "table7", "--dry-run", "--out", tmp_path, "--edits"]
    said = " ".join(tpatcher(*words, "all").output.split())  # however wide the terminal is
    assert "all mistakes of the whole edit set" in said
    assert tpatcher(*words, "many").exit_code == 2


def test_beta_of_an_activation_that_the_paper_does_not_have(tmp_path: Path) -> None:
    """Of SiLU: −3 is another β than its own, and what its own is stands in the report."""
    on = tiny.setup(tmp_path, "llama")
    assert on.beta == pytest.approx(-7.283) and not tiny.setup(tmp_path, "bert").notes
    [frontier] = plan([TABLES["frontier"]], [on], tiny.SCALE)
    [own], [three] = frontier.jobs[rows.beta(on.beta)], frontier.jobs[rows.beta(-3.0)]
    assert own == frontier.jobs[rows.T_PATCHER][0]
    assert own.fields["solver"] == {"name": "paper"}
    assert three.fields["solver"] == {"name": "paper", "beta": -3.0}
    [note] = on.notes
    assert "-7.283, is our own" in note
    assert note in forms.as_text([frontier.read(tmp_path)], "md")


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
