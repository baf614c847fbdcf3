"""A user's own files, in every format, come back as they were meant."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpatcher.data.custom import own, read_examples, read_texts
from tpatcher.data.reader import SkippedLines
from tpatcher.errors import BadInput
from tpatcher.example import KINDS, Conversation, Document, Example

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS).filter(str.strip)
# What a cell of a list can hold: no bar, no white space around it.
ELEMENTS = st.text(CHARACTERS).map(lambda t: t.replace("|", "").strip()).filter(bool)


def examples(elements: st.SearchStrategy[str]) -> st.SearchStrategy[list[Example]]:
    """Lists of examples whose own lists hold these elements."""
    lists = st.lists(elements, max_size=3).map(tuple)
    one = st.builds(Example, TEXTS, TEXTS, also=lists, rephrasings=lists, unrelated=st.just(()))
    return st.lists(one, min_size=1, max_size=4)


@given(examples(TEXTS))
def test_any_examples_survive_json_lines(wanted: list[Example]) -> None:
    near = [replace(e, kind=kind) for e, kind in zip(wanted, ("", *KINDS), strict=False)]
    wanted = [Example("first", "yes", unrelated=tuple(near)), *wanted]
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        lines = (json.dumps(e.to_json(), ensure_ascii=False) for e in wanted)
        path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
        assert read_examples(path) == wanted


@given(examples(ELEMENTS), st.sampled_from([(".csv", ","), (".tsv", "\t")]))
def test_any_examples_survive_a_table(wanted: list[Example], kind: tuple[str, str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "a" + kind[0])
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            table = csv.writer(file, delimiter=kind[1])
            table.writerow(["id", "text", "answer", "also", "rephrasings"])
            for e in wanted:
                table.writerow([7, e.text, e.answer, "|".join(e.also), " | ".join(e.rephrasings)])
        assert read_examples(path) == wanted


def test_optional_columns_may_be_absent_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,answer,also\nQ?,A,\nR?,B\n")
    assert read_examples(path) == [Example("Q?", "A"), Example("R?", "B")]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "text;answer\nQ?;A\n", ":2: a row needs 'text'; this one has text;answer"),
        ("a.csv", "text,answer\nQ?,\n", ":2: 'answer' must be a text; found ''"),
        ("a.jsonl", '{"text": "Q?", "answer": 1}', ":1: 'answer' must be a text; found 1"),
        ("a.jsonl", '{"text": "Q?", "answer": "A", "also": 1}', ":1: 'also' must be a list"),
        (
            "a.jsonl",
            '{"text": "Q?", "answer": "A", "unrelated": ["B"]}',
            r":1: 'unrelated' must be a list of objects; found \['B'\]",
        ),
        (
            "a.jsonl",
            '{"text": "Q?", "answer": "A", '
            '"unrelated": [{"text": "B", "answer": "", "kind": "sister"}]}',
            ":1: .*Did you mean 'sisters'",
        ),
        ("a.txt", "Q?\n", ":1: a row needs 'answer'; this one has text"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=name + reason):
        read_examples(tmp_path / name)


def test_bad_lines_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,answer\nQ?,A\n,B\n")
    with pytest.warns(SkippedLines, match="bad lines skipped: 1"):
        assert read_examples(tmp_path / "a.csv", skip_bad=True) == [Example("Q?", "A")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "one\n\ntwo\n"),
        ("a.jsonl", '{"text": "one", "user": 3}\n{"text": "two"}'),
        ("a.csv", "user,text\n3,one\n4,two\n"),
        ("b.jsonl", '{"question": "one", "answers": ["1"]}\n{"claim": "two", "label": "true"}'),
    ],
)
def test_texts_come_from_any_format(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_texts(tmp_path / name) == ["one", "two"]


def test_one_file_is_split(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tanswer\n" + "".join(f"{i}\tA\n" for i in range(20)))
    split = own(tmp_path / "a.tsv")
    assert [len(p) for p in (split.train, split.test, split.edit)] == [16, 2, 2]


def test_a_folder_holds_each_part(tmp_path: Path) -> None:
    for name in ("train.csv", "edit.csv", "test.csv"):
        (tmp_path / name).write_text(f"text,answer\n{name},A\n")
    split = own(tmp_path)
    assert [p[0].text for p in (split.train, split.edit, split.test)] == [
        "train.csv",
        "edit.csv",
        "test.csv",
    ]


def test_a_part_must_be_exactly_one_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"needs one file train\.jsonl \(or .*\); found none"):
        own(tmp_path)
    for name in ("train.csv", "train.jsonl"):
        (tmp_path / name).write_text("text,answer\nQ?,A\n")
    with pytest.raises(BadInput, match=r"found train\.jsonl and train\.csv"):
        own(tmp_path)


def test_conversations_and_documents(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Who?"}]
    rows: list[dict[str, Any]] = [
        {"messages": talk}, {"document": "A heron stands."}, {"text": "Where?"}
    ]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked, read, plain = read_texts(tmp_path / "t.jsonl")
    assert isinstance(asked, Conversation)
    assert [dict(m) for m in asked.messages] == talk
    assert isinstance(read, Document)
    assert plain == "Where?"
    row = {"text": talk, "answer": "Bo", "match": "contains", "rephrasings": [talk, "And who?"]}
    (tmp_path / "e.jsonl").write_text(json.dumps(row))
    (example,) = read_examples(tmp_path / "e.jsonl")
    assert example.to_json() == row
    assert example.accepts("It was Bo.")
    assert not example.accepts("It was Bob.")
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": [{"content": "x"}], "answer": "y"}))
    with pytest.raises(BadInput, match="role"):
        read_examples(tmp_path / "bad.jsonl")
