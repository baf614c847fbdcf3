"""A file is read row by row; what is wrong comes with its file and line."""

import gzip
from pathlib import Path

import pytest

from tpatcher.data.formats import Row
from tpatcher.data.reader import SkippedLines, kind, read
from tpatcher.errors import BadInput


def number(row: Row) -> int | None:
    """The field `n`; zero does not belong, a negative one is bad."""
    if row["n"] < 0:
        raise BadInput(f"{row['n']} is negative")
    return row["n"] or None


def write(path: Path, content: str | bytes) -> Path:
    """A file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_rows_that_do_not_belong_are_left_out_silently(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", '{"n": 1}\n{"n": 0}\n{"n": 2}'), number) == [1, 2]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_bytes_not_names_say_what_is_gzipped(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / name, '{"n": 1}'), number) == [1]
    assert read(write(tmp_path / name, gzip.compress(b'{"n": 2}')), number) == [2]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", '\ufeff{"n": 1}'), number) == [1]
    assert read(write(tmp_path / "a.csv", "\ufefftext\nx"), dict) == [{"text": "x"}]


def test_a_bad_line_stops_with_file_line_and_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"n": 1}\n\n{"n": -5}\n')
    with pytest.raises(BadInput) as error:
        read(path, number)
    assert str(error.value) == f"{path}:3: -5 is negative"


def test_skipped_lines_are_all_told_in_one_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n": 1}\nnope\n{"n": "\xff"}\n{"n": -5}\n{"n": 2}\n')
    with pytest.warns(SkippedLines, match=r"skipped: 3; the first is .*a\.jsonl:2") as told:
        assert read(path, number, skip_bad=True) == [1, 2]
    warning = told.pop(SkippedLines).message
    assert isinstance(warning, SkippedLines)
    assert warning.messages == [
        f"{path}:2: not JSON: Expecting value at column 1",
        f"{path}:3: not UTF-8 at character 8",
        f"{path}:4: -5 is negative",
    ]


def test_a_file_without_one_good_row_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"n": -1}\n{"n": -2}\n')
    with pytest.raises(BadInput, match=r"every row is bad; the first is .*:1: -1 is negative"):
        read(path, number, skip_bad=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", ""),
        ("a.jsonl", "\n \n"),
        ("a.json", "[]"),
        ("a.csv", "text,answer\n"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0)),
    ],
)
def test_an_empty_file_is_an_error(tmp_path: Path, name: str, content: str | bytes) -> None:
    with pytest.raises(BadInput, match=f"{name}: empty"):
        read(write(tmp_path / name, content), dict)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone\.csv: No such file"):
        read(tmp_path / "gone.csv", dict)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(BadInput, match=r"a\.json: Is a directory"):
        read(tmp_path / "a.json", dict)


def test_an_unknown_kind_of_file_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a\.parquet: the name must end in \.jsonl, \.json, \.csv"):
        read(write(tmp_path / "a.parquet", "PAR1"), dict)


@pytest.mark.parametrize("damage", [slice(0, 30), slice(0, 12)])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage: slice) -> None:
    whole = gzip.compress(b'{"n": 1}\n' * 1000)
    with pytest.raises(BadInput, match=r"a\.jsonl\.gz: "):
        read(write(tmp_path / "a.jsonl.gz", whole[damage]), number)


def test_the_kind_of_a_file_is_the_end_of_its_name() -> None:
    assert [kind("x/a.b.CSV"), kind("a.tsv.gz"), kind("a")] == [".csv", ".tsv", ""]
