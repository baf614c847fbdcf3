"""Running a job: what is kept of it, and the same from the command line."""

import json
import shlex
from pathlib import Path

import pytest

from tests.bench import tiny
from tests.helpers import tpatcher
from tpatcher import sme
from tpatcher.bench.context import Context
from tpatcher.bench.rows import FAST
from tpatcher.bench.run import run
from tpatcher.bench.setup import Setup
from tpatcher.bench.table import FIRST, FOLDERS, jobs


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return tiny.setup(tmp_path_factory.mktemp("a bert"), "bert")


def test_a_complete_job_is_not_run_again(setup: Setup, tmp_path: Path) -> None:
    [job] = jobs(FAST, setup, tiny.SCALE, FIRST)
    out = tmp_path / "job"
    context = Context.open(job, tmp_path)
    editor = context.fitted(job)
    seen = []
    found = run(job, context, editor, out, lambda **now: seen.append(now))
    stream, mistakes = context.stream(job)
    assert seen[-1] == {"completed": len(stream), "total": len(stream)}
    assert found["scores"]["SR"] == 1.0
    assert found["scores"]["N"] == mistakes
    assert found["activations"]["Edit"][0] > 1
    assert found["bytes_per_edit"] > 100
    assert len(list(tmp_path.glob("memory-*"))) == 1
    (out / "steps.jsonl").unlink()
    assert run(job, context, editor, out) == found
    assert not (out / "steps.jsonl").exists()


def test_the_command_of_a_job_makes_its_numbers(setup: Setup, tmp_path: Path) -> None:
    job = jobs(FAST, setup, tiny.SCALE, FOLDERS)[1]
    context = Context.open(job, tmp_path)
    found = run(job, context, context.fitted(job), tmp_path / "job")
    _, *words = shlex.split(job.command(tmp_path / "runs"))
    out = tpatcher(*words)
    assert out.exit_code == 0, (out.output, out.exception)
    again = json.loads((tmp_path / "runs" / "scores.json").read_bytes())
    timed = {"seconds_per_edit": 0.0}
    assert again["scores"] | timed == found["scores"] | timed
    assert again["f0"] == found["f0"]


def test_sme_runs_every_folder_and_sums_up(setup: Setup, tmp_path: Path) -> None:
    words = ["sme", setup.model, "--data", "own", "--path", setup.path, "--folders", 2, "--tr", 8]
    words += ["--edits", 1, "--memory-size", 20, "--out", tmp_path]
    out = tpatcher(*words)
    assert out.exit_code == 0, (out.output, out.exception)
    found = json.loads((tmp_path / "scores.json").read_bytes())
    runs = [sme.read(tmp_path / str(i))[1] for i in range(2)]
    assert found["scores"] == json.loads(json.dumps(sme.summary(runs)))
    assert found["job"]["folders"] == 2
    assert found["f0"]["train"]["examples"] == 8
    out = tpatcher(*words, "--folder", 2)
    assert "counted from 0" in str(out.exception)


def test_sme_takes_the_caches_threshold_and_measures_negations(
    setup: Setup, tmp_path: Path
) -> None:
    words = ["sme", setup.model, "--data", "own", "--path", setup.path, "--tr", 8, "--edits", 4]
    words += ["--editor", "cache", "--knobs", '{"threshold": 1}', "--out", tmp_path]
    out = tpatcher(*words)
    assert out.exit_code == 0, (out.output, out.exception)
    found = json.loads((tmp_path / "scores.json").read_bytes())
    assert found["job"]["fields"] == {"threshold": 1}
    assert {found["scores"][m] for m in ("SR", "ER", "TestR", "Negations")} == {1.0}
    assert found["scores"]["Sisters"] is None
