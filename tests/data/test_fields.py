"""Fields are checked as they are read, and say which one is wrong."""

import pytest

from tpatcher.data.fields import answers, others, text, texts
from tpatcher.errors import BadInput


def test_the_first_field_that_is_there_counts() -> None:
    assert text({"b": "x", "c": "y"}, "a", "b", "c") == "x"
    assert texts({"a": None, "b": ["x", " ", "y"]}, "a", "b") == ["x", "y"]
    assert texts({"a": "alone"}, "a") == ["alone"]
    assert texts({}, "a") == []


def test_a_missing_text_names_what_is_there() -> None:
    with pytest.raises(BadInput, match="needs 'claim' or 'input'; this one has id, label"):
        text({"id": 1, "label": "x"}, "claim", "input")


@pytest.mark.parametrize("found", [None, 3, "", " ", ["x"]])
def test_a_text_must_be_one(found: object) -> None:
    with pytest.raises(BadInput, match="'a' must be a text; found"):
        text({"a": found}, "a")


@pytest.mark.parametrize("found", [3, [3], {"x": 1}, [["x"]]])
def test_a_list_must_hold_texts(found: object) -> None:
    with pytest.raises(BadInput, match="'a' must be a list of texts; found"):
        texts({"a": found}, "a")


@pytest.mark.parametrize("found", [3, "x", [3], {"x": 1}])
def test_a_list_must_hold_objects(found: object) -> None:
    with pytest.raises(BadInput, match="'output' must be a list of objects; found"):
        answers({"output": found})


def test_answers_are_distinct_as_they_are_compared() -> None:
    assert answers({"answers": ["Paris", "paris ", "Lyon"]}) == ["Paris", "Lyon"]


def test_answers_with_evidence_win_over_those_without() -> None:
    bare, cited = {"answer": "a"}, {"answer": "b", "provenance": []}
    assert answers({"output": [bare, cited, {"provenance": []}]}) == ["b"]
    assert answers({"output": [bare, {"answer": "c"}]}) == ["a", "c"]


@pytest.mark.parametrize("row", [{"x": 1}, {"answers": []}, {"output": [{"provenance": []}]}])
def test_no_answer_is_bad(row: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="needs an answer"):
        answers(row)


def test_others_are_distinct_and_other() -> None:
    assert others("a", ["b", "a", "c", "b"]) == ("b", "c")
