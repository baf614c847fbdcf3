"""A dataset's files are found by name, in a folder or one of its folders."""

from pathlib import Path

import pytest

from tpatcher.data.locate import locate
from tpatcher.errors import BadInput


def touch(*paths: Path) -> None:
    """Empty files, with their folders."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_first_complete_layout_wins(tmp_path: Path) -> None:
    touch(tmp_path / "a.json", tmp_path / "c.json", tmp_path / "d.json")
    found = locate(tmp_path, ("a.json", "b.json"), ("c.json", "d.json"))
    assert found == [tmp_path / "c.json", tmp_path / "d.json"]


def test_files_may_be_gzipped_and_in_folders(tmp_path: Path) -> None:
    wanted = [tmp_path / "a.json.gz", tmp_path / "sub" / "b.json", tmp_path / "q" / "dev.jsonl.gz"]
    touch(*wanted)
    assert locate(tmp_path, ("a*", "b.json", "q/dev*")) == wanted


def test_a_pattern_is_for_one_file_that_can_be_read(tmp_path: Path) -> None:
    touch(*(tmp_path / name for name in ("a_train.json", "a_train.json.gz", "a_train.md")))
    assert locate(tmp_path, ("a*train*",)) == [tmp_path / "a_train.json"]
    touch(tmp_path / "a_train_2.csv")
    with pytest.raises(BadInput, match=r"one file a\*train\*; found a_train.json, a_train_2.csv"):
        locate(tmp_path, ("a*train*",))


def test_files_beside_a_folder_are_not_its_own(tmp_path: Path) -> None:
    touch(tmp_path / "a.json", tmp_path / "mine" / "b.json", tmp_path / "q" / "dev.json")
    with pytest.raises(BadInput, match=r"mine: needs a\.json, b\.json, q/dev\*") as error:
        locate(tmp_path / "mine", ("a.json", "b.json", "q/dev*"))
    assert str(error.value).endswith("(plain or .gz); found b.json")


def test_what_was_looked_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"needs a, b; or c \(plain or \.gz\); found none of them"):
        locate(tmp_path, ("a", "b"), ("c",))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    touch(tmp_path / "a.json")
    with pytest.raises(BadInput, match=r"a\.json: not a folder"):
        locate(tmp_path / "a.json", ("a.json",))
