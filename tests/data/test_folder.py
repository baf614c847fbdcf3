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


def test_files_may_be_gzipped_and_in_folders_and_beside(tmp_path: Path) -> None:
    mine, beside = tmp_path / "mine", tmp_path / "beside" / "dev.jsonl.gz"
    touch(mine / "a.json.gz", mine / "sub" / "b.json", beside)
    found = locate(mine, ("a.json", "b.json", "beside/dev.jsonl"))
    assert found == [mine / "a.json.gz", mine / "sub" / "b.json", beside]


def test_files_beside_a_folder_are_not_its_own(tmp_path: Path) -> None:
    touch(tmp_path / "a.json", tmp_path / "mine" / "b.json")
    with pytest.raises(BadInput, match=r"mine: needs a\.json, b\.json \(plain or \.gz\)") as error:
        locate(tmp_path / "mine", ("a.json", "b.json"))
    assert str(error.value).endswith("found b.json")


def test_what_was_looked_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"needs a, b; or c \(plain or \.gz\); found none of them"):
        locate(tmp_path, ("a", "b"), ("c",))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    touch(tmp_path / "a.json")
    with pytest.raises(BadInput, match=r"a\.json: not a folder"):
        locate(tmp_path / "a.json", ("a.json",))
