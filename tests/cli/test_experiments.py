"""The commands for experiments; `demo`, `sme` and `reproduce` are run in tests/bench."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import tpatcher
from tpatcher.checkpoints.builtin import BUILTIN
from tpatcher.checkpoints.recipes import FEVER


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was to be trained, and by which recipe; nothing is."""
    found: list[Any] = []

    def note(*words: Any, recipe: Any, device: str | None) -> None:
        found.extend([*words, recipe])

    monkeypatch.setattr("tpatcher.checkpoints.builtin.train_builtin", note)
    monkeypatch.setattr("tpatcher.checkpoints.train.train", note)
    monkeypatch.setattr("tpatcher.data.dataset", lambda name, path, skip_bad: (name, path))
    return found


def test_epochs_count_for_a_builtin_model_too(trained: list[Any], tmp_path: Path) -> None:
    out = tpatcher("train", "builtin-fc", tmp_path, "--epochs", 3)
    assert out.exit_code == 0, (out.output, out.exception)
    name, where, recipe = trained
    assert (name, where, recipe.epochs) == ("builtin-fc", tmp_path, 3)
    assert recipe.rate == BUILTIN["builtin-fc"].rate


def test_training_on_data_needs_a_model_to_begin_with(trained: list[Any], tmp_path: Path) -> None:
    out = tpatcher("train", "fevr", tmp_path)
    assert "Did you mean 'fever'?" in str(out.exception)
    out = tpatcher("train", "fever", tmp_path)
    assert "--base and --path" in str(out.exception)
    out = tpatcher("train", "fever", tmp_path, "--base", "bert", "--path", tmp_path)
    assert out.exit_code == 0, (out.output, out.exception)
    assert trained == ["bert", ("fever", tmp_path), "classify", tmp_path, FEVER]


@pytest.mark.parametrize("knobs", ["{radius: 1}", "[1]"])
def test_knobs_that_are_no_json_object_are_refused(knobs: str, tmp_path: Path) -> None:
    out = tpatcher("sme", "builtin-fc", "--data", "builtin-fc", "--out", tmp_path, "--knobs", knobs)
    assert out.exit_code == 2
    assert "--knobs" in out.output and knobs in out.output


@pytest.mark.parametrize("command", ["demo", "sme", "reproduce", "train"])
def test_every_command_says_what_it_does(command: str) -> None:
    out = tpatcher(command, "--help")
    assert out.exit_code == 0
    assert f"tpatcher {command}" in out.output or "Usage" in out.output
