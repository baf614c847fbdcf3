"""One job: what decides its key, and the command that runs it alone."""

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tpatcher.bench.job import Job
from tpatcher.editors import EDITORS
from tpatcher.editors.tpatcher import Paper
from tpatcher.errors import BadInput

JOB = Job(model="builtin-fc", data="builtin-fc", n_train=5)
OTHER: dict[str, Any] = {
    "fields": {"solver": {"name": "paper"}}, "path": Path("x"), "exclude": Path("x"),
    "editor": "ft-all",
    "skip_bad": True, "model": "m", "data": "own", "traffic": (Path("x"),), "demo": True,
}  # fmt: skip


def test_everything_that_decides_a_result_decides_its_key() -> None:
    keys = {replace(JOB, **{f.name: OTHER.get(f.name, 77)}).key for f in fields(Job)}
    assert len(keys | {JOB.key}) == len(fields(Job)) + 1
    assert JOB.key == replace(JOB).key


def test_results_of_earlier_versions_are_found_by_the_same_key() -> None:
    """The hash is over these names and values, and over nothing else."""
    job = Job(model="m", data="own", path=Path("a b"), n_train=5, memory_size=7, folders=2)
    assert job.to_json() == {
        "model": "m", "data": "own", "editor": "t-patcher", "fields": {}, "path": "a b",
        "without": None, "traffic": [], "folders": 2, "folder": 0, "edits": None, "most": None,
        "tr": 5, "test": None, "memory": 7, "every": None, "given": 0, "longer": 0, "seed": 0,
        "skip_bad": False,
    }  # fmt: skip
    assert job.key == "own.t-patcher.0of2-ee80f5c5bb"


def test_a_result_of_an_older_version_of_an_editor_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(model="m", data="own", editor="mend")
    before, fitted = job.key, job.fit_key
    monkeypatch.setattr(EDITORS["mend"], "version", EDITORS["mend"].version + 1)
    assert job.key != before
    assert job.fit_key != fitted
    paper = replace(job, editor="t-patcher", fields={"solver": {"name": "paper"}})
    fast = replace(job, editor="t-patcher")
    keys = paper.key, fast.key
    monkeypatch.setattr(Paper, "version", Paper.version + 1)
    assert (paper.key != keys[0], fast.key == keys[1]) == (True, True)


def test_jobs_of_one_editor_share_its_fit() -> None:
    job = replace(JOB, folders=4)
    same = [
        replace(job, folder=3),
        replace(job, fields={"solver": {"name": "fast", "crossing": 0.2}}),
    ]
    assert {j.fit_key for j in same} == {job.fit_key}
    other = [
        replace(job, memory_size=9), replace(job, fields={"layer": -2}), replace(job, editor="ke"),
    ]  # fmt: skip
    assert len({j.fit_key for j in [job, *other]}) == 4
    assert replace(job, editor="ft-all").fit_key is None
    with pytest.raises(BadInput, match=r"unknown editor 'mned'. Did you mean 'mend'\?"):
        _ = replace(job, editor="mned").fit_key


def test_a_command_says_what_differs_from_the_defaults_and_quotes_it() -> None:
    job = Job(
        model="my models/a",
        data="own",
        path=Path("my data"),
        fields={"layer": -2},
        traffic=(Path("a b.txt"), Path("c.txt")),
        folders=3,
        memory_size=9,
        skip_bad=True,
    )
    assert shlex.split(job.command("my runs")) == [
        "tpatcher", "sme", "my models/a", "--data", "own", "--editor", "t-patcher",
        "--knobs", json.dumps({"layer": -2}), "--path", "my data", "--traffic", "a b.txt",
        "--traffic", "c.txt", "--folders", "3", "--folder", "0", "--memory-size", "9",
        "--skip-bad", "--out", "my runs",
    ]  # fmt: skip
    assert replace(JOB, demo=True, edits=3).command("x") == "tpatcher demo --edits 3"
