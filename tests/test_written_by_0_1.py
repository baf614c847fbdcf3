"""Packs, the memory and the store that tpatcher 0.1 wrote can still be read."""

import json
import shutil
from pathlib import Path

import pytest

import tpatcher as tp
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.store.audit import Audit
from tpatcher.store.reports import Reports
from tpatcher.store.store import Store

WRITTEN = Path(__file__).with_name("written_by_0_1")
ANSWERS: dict[str, dict[str, str]] = json.loads((WRITTEN / "answers.json").read_text())
PACKS = {"neurons": "store", "ft-last": "ft-last", "grace": "grace", "sera": "sera"}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy, which may be written to."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "written"))


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_gives_the_same_answers(written: Path, name: str) -> None:
    model, answers = tp.load("builtin-fc", patches=written / name), ANSWERS[PACKS[name]]
    assert model.answer(list(answers)) == list(answers.values())


def test_the_store_opens_with_its_fixes_its_report_and_its_event(written: Path) -> None:
    model, answers = tp.load("builtin-fc"), ANSWERS["store"]
    store = Store(written / "store.db", model.base)
    assert store.live_ids() == [1, 3, 4]  # fix 2 was removed
    assert [(e.action, e.target, e.who) for e in store.log()][-1] == ("remove", 2, "bob")
    model.set_patches(store.live())
    assert model.answer(list(answers)) == list(answers.values())
    assert [f.example.text for f in store.fixes() if f.example] == list(answers)
    (report,) = Reports(lambda: store, 10).waiting()
    assert (report.text, report.answer, report.who) == ("who wrote hamlet ?", "yes", "ada")
    (event,) = Audit(lambda: store).latest()
    assert (event["who"], event["what"], event["fix"]) == ("ada", "fix", 1)
    store.close()


def test_the_memory_is_fit_for_an_edit(written: Path) -> None:
    model, answers = tp.load("builtin-fc"), ANSWERS["store"]
    editor = tp.TPatcher().fit(model, Memory.load(written / "memory"))
    text = next(text for text in answers if model.answer([text])[0] != answers[text])
    model.push(editor.edit(model, tp.Example(text, answers[text])))
    assert model.answer([text]) == [answers[text]]
