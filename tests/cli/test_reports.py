"""The commands that take corrections in and give fixes out."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import zoo
from tests.helpers import tpatcher
from tests.store.made import patch
from tpatcher.data import read_examples
from tpatcher.models.model import Model
from tpatcher.store.reports import Reports
from tpatcher.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    base = Model(zoo.net("bert"), zoo.tokenizer("classify"), "classify").base
    made = Store(tmp_path / "s.db", base)
    made.append_many(patch(n) for n in range(3))
    return made


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A file with two good rows, a bad one and one that corrects nothing."""
    rows: list[Any] = [
        {"data": {"text": "a"}, "annotations": [{"result": [
            {"from_name": "label", "value": {"choices": [label]}}]}]}
        for label in ("yes", "no")
    ]  # fmt: skip
    rows += [{"data": {"text": "b"}, "annotations": []}, {"data": 5, "annotations": [{}]}]
    file = tmp_path / "export.json"
    file.write_text(json.dumps(rows))
    return file


def test_corrections_wait_at_the_desk(store: Store, export: Path, tmp_path: Path) -> None:
    command = ["import-reports", str(export), "--store", str(tmp_path / "s.db")]
    done = tpatcher(*command)
    assert done.exit_code == 1 and "reports added: 2" in done.output
    assert (
        f"{export.name}:" in done.output
        and "bad rows: 1; rows that correct nothing: 1" in done.output
    )
    waiting = Reports(lambda: store, 10).waiting()
    assert [(r.text, r.answer, r.who) for r in waiting] == [
        ("a", answer, "import of export.json") for answer in ("yes", "no")
    ]
    assert "reports added: 0; known already or left out: 2" in tpatcher(*command).output
    store.close()


def test_or_become_a_file_of_mistakes(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = tpatcher("import-reports", str(export), "--out", str(out), "--from", "label-studio")
    assert done.exit_code == 1 and "2 mistakes" in done.output
    assert [(e.text, e.answer) for e in read_examples(out)] == [("a", "yes"), ("a", "no")]
    wrong = tpatcher("import-reports", str(export))
    assert wrong.exit_code == 1 and "give either --store" in str(wrong.exception)


@pytest.mark.parametrize("form", ["jsonl", "dify"])
def test_live_fixes_are_written_to_a_file(store: Store, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    store.remove(2)
    store.close()
    done = tpatcher("store", "export", str(tmp_path / "s.db"), str(out), "--format", form)
    assert done.exit_code == 0 and "2 fixes" in done.output
    assert [
        line for n in (0, 1, 2) for line in out.read_text().splitlines() if f"question {n}" in line
    ] == (out.read_text().splitlines()[-2:])


def test_old_events_are_pruned(store: Store, tmp_path: Path) -> None:
    store.close()
    done = tpatcher("store", "prune", str(tmp_path / "s.db"), "--days", "1")
    assert done.exit_code == 0 and "deleted: 0 events, 0 settled reports" in done.output
