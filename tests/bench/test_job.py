"""One job: what decides its key, what is kept of it, and the command that runs it alone."""

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench import tiny
from tests.test_cli import tpatcher
from tpatcher import sme
from tpatcher.bench import job as jobs
from tpatcher.bench.experiments import FIRST, Task
from tpatcher.bench.experiments import jobs as jobs_of
from tpatcher.bench.job import Job
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import BadInput, Damaged
from tpatcher.models.loading import load

OTHER: dict[str, Any] = {
    "fields": {"preset": "paper"}, "path": Path("x"), "without": Path("x"), "editor": "ft-all",
    "skip_bad": True, "model": "m", "data": "own", "traffic": (Path("x"),),
}  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return tiny.task(tmp_path_factory.mktemp("bert"), "bert")


def test_everything_that_decides_a_result_decides_its_key() -> None:
    job = Job("builtin-fc", "builtin-fc", tr=5)
    keys = {replace(job, **{f.name: OTHER.get(f.name, 77)}).key for f in fields(Job)}
    assert len(keys | {job.key}) == len(fields(Job)) + 1
    assert job.key == Job("builtin-fc", "builtin-fc", tr=5).key


def test_jobs_of_one_editor_share_its_fit() -> None:
    job = Job("builtin-fc", "builtin-fc", folders=4)
    same = [replace(job, folder=3), replace(job, fields={"settings": {"crossing": 0.2}})]
    assert {j.fit_key for j in same} == {job.fit_key}
    other = [replace(job, memory=9), replace(job, fields={"layer": -2}), replace(job, editor="ke")]
    assert len({j.fit_key for j in [job, *other]}) == 4
    assert replace(job, editor="ft-all").fit_key is None


def test_a_stream_ends_with_its_last_mistake(task: Task) -> None:
    [job] = jobs_of("t-patcher-fast", task, tiny.SCALE, FIRST)
    stream = jobs.ground(job).stream(job)
    right = load(task.model).correct(stream)
    assert right.count(False) == 2
    assert not right[-1]
    whole = jobs.ground(job).stream(replace(job, edits=None))
    assert whole[: len(stream)] == stream
    assert len(whole) == 6


def test_traffic_joins_the_memory_and_nothing_that_is_measured(task: Task, tmp_path: Path) -> None:
    [job] = jobs_of("t-patcher-fast", task, tiny.SCALE, FIRST)
    assert jobs.ground(job).traffic == []
    split = jobs.ground(job).split
    measured = [*(e.text for e in [*split.edit, *split.test]), *split.edit[0].rephrasings]
    (tmp_path / "a.txt").write_text("\n".join([*measured, "one", "two", "two"]))
    (tmp_path / "b.jsonl").write_text(
        '{"question": "three"}\n{"question": "four"}\n{"claim": "one"}'
    )
    job = replace(job, traffic=(tmp_path / "a.txt", tmp_path / "b.jsonl"))
    with pytest.raises(BadInput, match="no room for traffic"):
        jobs.ground(job)
    job = replace(job, memory=200)
    on = jobs.ground(job)
    assert sorted(on.traffic[:2]) == ["one", "two"]  # of the first file first
    assert sorted(on.traffic[2:]) == ["four", "three"]
    jobs.fit(job, tmp_path)
    [kept] = tmp_path.glob("memory-*")
    assert Memory.load(kept).texts == [*(e.text for e in on.memory), *on.traffic]
    with pytest.raises(BadInput, match="ft-all keeps no memory"):
        jobs.fit(replace(job, editor="ft-all", fields={}), tmp_path)
    assert f"--traffic {tmp_path / 'a.txt'} --traffic {tmp_path / 'b.jsonl'}" in job.command("o")


def test_a_complete_job_is_not_run_again(task: Task, tmp_path: Path) -> None:
    [job] = jobs_of("t-patcher-fast", task, tiny.SCALE, FIRST)
    out = tmp_path / "job"
    out.mkdir()
    found = jobs.run(job, out, tmp_path)
    assert found["scores"]["SR"] == 1.0
    assert found["activations"]["Edit"][0] > 1
    assert found["bytes_per_edit"] > 100
    assert len(list(tmp_path.glob("memory-*"))) == 1
    (out / "steps.jsonl").unlink()
    assert jobs.run(job, out, tmp_path) == found
    assert not (out / "steps.jsonl").exists()


def test_answers_of_f0_are_kept_and_found_again(task: Task, tmp_path: Path) -> None:
    [job] = jobs_of("t-patcher-fast", task, tiny.SCALE, FIRST)
    on = jobs.ground(job)
    on.paths = {}
    first = on.retain(tmp_path)
    files = sorted(tmp_path.glob("paths-*"))
    assert len(files) == 2
    on.paths = {}
    again = on.retain(tmp_path)
    model = on.base.twin()
    model.push(jobs.fit(job, tmp_path).edit(model, on.stream(job)[-1]))
    for name, paths in first.items():
        assert again[name].targets == paths.targets
        assert again[name].base == paths.base == on.base.correct(paths.examples)
        assert again[name].correct(model) == paths.correct(model)
    on.paths = {}
    files[0].write_bytes(b"half of it")
    with pytest.raises(Damaged, match="remove it"):
        on.retain(tmp_path)
    on.paths = first


def test_the_command_of_a_job_makes_its_numbers(task: Task, tmp_path: Path) -> None:
    job = jobs_of("t-patcher-fast", task, tiny.SCALE, "all folders")[1]
    (tmp_path / "job").mkdir()
    found = jobs.run(job, tmp_path / "job", tmp_path)
    _, *words = shlex.split(job.command(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    out = tpatcher(*words)
    assert out.exit_code == 0, (out.output, out.exception)
    again = json.loads((tmp_path / "runs" / "scores.json").read_bytes())
    timed = {"seconds_per_edit": 0.0}
    assert again["scores"] | timed == found["scores"] | timed
    assert again["f0"] == found["f0"]


def test_sme_runs_every_folder_and_sums_up(task: Task, tmp_path: Path) -> None:
    words = f"sme {task.model} --data own --path {task.path} --folders 2 --edits 1 --tr 8"
    out = tpatcher(*words.split(), "--memory", 20, "--out", tmp_path)
    assert out.exit_code == 0, (out.output, out.exception)
    found = json.loads((tmp_path / "scores.json").read_bytes())
    runs = [sme.read(tmp_path / str(i))[1] for i in range(2)]
    assert found["scores"] == json.loads(json.dumps(sme.summary(runs)))
    assert found["job"]["folders"] == 2
    assert found["f0"]["train"]["examples"] == 8
    out = tpatcher(*words.split(), "--memory", 20, "--out", tmp_path, "--folder", 2)
    assert "counted from 0" in str(out.exception)
