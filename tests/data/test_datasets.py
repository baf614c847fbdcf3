"""Datasets are found by name, and a wrong name says which are right."""

import subprocess
import sys
from pathlib import Path

import pytest

from tpatcher.data import DATASETS, Split, dataset
from tpatcher.errors import BadInput


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(BadInput) as error:
        dataset("zsrE")
    assert str(error.value).startswith("unknown dataset 'zsrE'. Did you mean 'zsre'? Available: ")
    assert all(name in str(error.value) for name in DATASETS)


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(BadInput, match=r"^unknown dataset 'xyz'\. Available: fever, zsre, "):
        dataset("xyz")


@pytest.mark.parametrize("name", [name for name in DATASETS if "builtin" not in name])
def test_data_must_be_given_and_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"'{name}' needs the folder or file"):
        dataset(name)
    with pytest.raises(BadInput, match="needs"):
        dataset(name, tmp_path)


@pytest.mark.parametrize("name", [name for name in DATASETS if "builtin" in name])
def test_built_in_ones_need_no_files(name: str, tmp_path: Path) -> None:
    assert isinstance(dataset(name, seed=1), Split)
    with pytest.raises(BadInput, match="built in and reads no files"):
        dataset(name, tmp_path)


def test_options_reach_the_loader(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,answer\n" + "".join(f"{i},A\n" for i in range(20)))
    path = tmp_path / "a.csv"
    assert dataset("own", path, seed=1) == DATASETS["own"](path, seed=1) != dataset("own", path)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, tpatcher.data; print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
