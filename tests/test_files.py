"""Files and directories are written whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from tpatcher import files
from tpatcher.errors import BadInput

ROOT = Path(__file__).parents[1]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x"
    files.write_atomic(file, b"old")

    def full(fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        files.write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), files.new_directory(tmp_path / "new") as made:
        (made / "half").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with files.new_directory(tmp_path / "new") as made:
        (made / "whole").write_text("whole")
        assert not (tmp_path / "new").exists()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["whole"]
    with pytest.raises(BadInput, match="not empty"), files.new_directory(tmp_path / "new"):
        pass


KILLED = """
import os, pathlib, signal, sys
from tpatcher import files
with files.new_directory(sys.argv[1]) as made:
    (made / "weights").write_text("many")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_left_half_made_is_taken_away(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "new")], cwd=ROOT)
    (tmp_path / ".news").mkdir()  # of somebody else
    assert len(list(tmp_path.iterdir())) == 2
    with files.new_directory(tmp_path / "new") as made:
        with pytest.raises(KeyboardInterrupt), files.new_directory(tmp_path / "new"):
            raise KeyboardInterrupt
        assert made.exists()  # of a maker who lives nothing is taken away
        (made / "whole").write_text("whole")
    assert {p.name for p in tmp_path.iterdir()} == {"new", ".news"}


def test_the_header_of_safetensors_holds_what_was_saved() -> None:
    tensors = {"a": torch.zeros(2)}
    blob = save(tensors, metadata={"tpatcher": '{"n": 1}'})
    assert files.safetensors_metadata(blob) == {"n": 1}
    for bad in (b"", b"\xff" * 40, save(tensors), save(tensors, metadata={"tpatcher": "{"})):
        with pytest.raises((ValueError, KeyError, TypeError)):
            files.safetensors_metadata(bad)
