"""Each format gives rows with their line numbers, and says what is wrong where."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpatcher.data.formats import FORMATS, json_rows, table
from tpatcher.errors import BadInput

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.lists(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS)), max_size=5)


def rows(kind: str, text: str) -> list[tuple[int, Any]]:
    """All rows of a text, with what is wrong as a string."""
    found = FORMATS[kind](io.StringIO(text, newline="\n"))
    return [(n, str(row) if isinstance(row, BadInput) else row) for n, row in found]


def test_json_lines_keep_their_numbers_over_blank_lines() -> None:
    assert rows(".jsonl", '{"a": 1}\n\n \t\r\n{"a": 2}\r\n') == [(1, {"a": 1}), (4, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": 1', "not JSON: Expecting ',' delimiter at column 8"),
        ("3", "not a JSON object: 3"),
        ('{"a": ' + "9" * 5000 + "}", "not usable JSON: Exceeds the limit"),
        ('{"a": ' + "[" * 100_000, "not usable JSON: maximum recursion depth"),
        (r'{"a": "\uD83D"}', "not UTF-8 at character 8"),
        ('{"a": "\udcff"}', "not UTF-8 at character 8"),
    ],
)
def test_a_bad_line_is_named_and_the_next_one_read(line: str, reason: str) -> None:
    (first, bad), second = rows(".jsonl", line + '\n{"a": "\\ud83d\\ude00"}')
    assert first == 1
    assert bad.startswith(reason)
    assert second == (2, {"a": "\N{GRINNING FACE}"})


def test_elements_of_an_array_know_their_lines() -> None:
    text = '\n[\n {"a": 1},\n {"a":\n  2}, {"a": 3},\n 4\n]\n'
    bad = (6, "not a JSON object: 4")
    assert rows(".json", text) == [(3, {"a": 1}), (4, {"a": 2}), (5, {"a": 3}), bad]


def test_an_array_inside_json_lines_is_only_one_bad_line() -> None:
    assert rows(".jsonl", '{}\n[1]\n{"a": 1}') == [
        (1, {}),
        (2, "not a JSON object: [1]"),
        (3, {"a": 1}),
    ]


@pytest.mark.parametrize("tail", ["", ",", " \n"])
def test_an_array_without_its_end_says_so(tail: str) -> None:
    found = rows(".json", '[{"a": 1}' + tail)
    assert found[0] == (1, {"a": 1})
    assert "cut off" in found[1][1]


def test_a_broken_array_says_that_the_rest_is_lost() -> None:
    (_, first), (number, bad) = rows(".json", '[{"a": 1},\n{"a": oops},\n{"a": 3}]')
    assert first == {"a": 1}
    assert number == 2
    assert bad.startswith("not JSON from here to the end of the file")


@given(ROWS, st.sampled_from([None, 0, 2]))
def test_any_array_reads_like_any_lines(objects: list[dict[str, Any]], indent: int | None) -> None:
    array = json.dumps(objects, indent=indent, ensure_ascii=False)
    lines = "".join(json.dumps(o) + "\n" for o in objects)
    found = [[row for _, row in json_rows(io.StringIO(t, newline="\n"))] for t in (array, lines)]
    assert found == [objects, objects]


def test_a_table_row_knows_the_line_where_it_begins() -> None:
    text = 'text,answer\r\n"two\r\nlines",yes\r\n\r\n , \r\nlast,no\r\n'
    assert rows(".csv", text) == [
        (2, {"text": "two\r\nlines", "answer": "yes"}),
        (6, {"text": "last", "answer": "no"}),
    ]


def test_a_table_may_leave_out_last_cells_but_not_add_some() -> None:
    assert rows(".tsv", "a\t b \n1\n1\t2\n1\t2\t3\n\udcff\n") == [
        (2, {"a": "1"}),
        (3, {"a": "1", "b": "2"}),
        (4, "3 cells, but 2 columns"),
        (5, "not UTF-8 at character 1"),
    ]


def test_an_open_quote_says_how_far_it_reached() -> None:
    assert rows(".csv", 'a,b\n1,2\n"open,2\n3,4\n') == [
        (2, {"a": "1", "b": "2"}),
        (3, "unexpected end of data (from line 3 to 4)"),
    ]


def test_a_stray_quote_spoils_its_own_line_only() -> None:
    found = rows(".csv", 'a,b\n"x"y,2\n3,4\n')
    assert [number for number, _ in found] == [2, 3]
    assert found[1][1] == {"a": "3", "b": "4"}


@given(
    st.lists(st.tuples(TEXTS, TEXTS).filter(lambda r: "".join(r).strip())), st.sampled_from(",\t")
)
def test_any_table_comes_back_as_written(cells: list[tuple[str, str]], delimiter: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *cells])
    found = [row for _, row in table(io.StringIO(file.getvalue(), newline="\n"), delimiter)]
    assert found == [{"a": a, "b": b} for a, b in cells]


def test_plain_lines_are_texts() -> None:
    assert rows(".txt", "one \r\n\n[two]\n\udcff\n") == [
        (1, {"text": "one"}),
        (3, {"text": "[two]"}),
        (4, "not UTF-8 at character 1"),
    ]
