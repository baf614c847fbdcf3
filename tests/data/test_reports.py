"""Corrections from other tools: what each exports or sends, as far as it can be made sense of."""

import json
from pathlib import Path
from typing import Any

import pytest

from tpatcher.data.reports import Correction, Names, corrections, dify, guess, read_corrections
from tpatcher.errors import BadInput
from tpatcher.example import Example

ASKED, RIGHT, SAID = "Who wrote Hamlet?", "William Shakespeare", "Christopher Marlowe"
WHOLE = Correction(ASKED, RIGHT, SAID)
USER = {"role": "user", "content": ASKED}
LABEL_STUDIO_RESULT = {"from_name": "answer", "type": "textarea", "value": {"text": [RIGHT]}}
LABEL_STUDIO_SAID = {"from_name": "answer", "type": "textarea", "value": {"text": [SAID]}}
SENT: dict[str, tuple[str, dict[str, Any], Correction]] = {
    "argilla 2": (
        "argilla",
        {
            "id": "1",
            "fields": {"prompt": ASKED},
            "responses": {"answer": [{"value": RIGHT, "user_id": "u"}]},
            "suggestions": {"answer": {"value": SAID, "score": 0.4}},
        },
        WHOLE,
    ),
    "argilla 1": (
        "argilla",
        {
            "fields": {"text": ASKED, "response": SAID},
            "responses": [{"status": "submitted", "values": {"label": {"value": RIGHT}}}],
            "suggestions": [],
        },
        WHOLE,
    ),
    "argilla webhook": (
        "argilla",
        {
            "type": "response.created",
            "version": 1,
            "timestamp": "2024-11-03T20:26:10Z",
            "data": {
                "status": "submitted",
                "values": {"correction": {"value": RIGHT}},
                "record": {"fields": {"chat": [USER]}},
            },
        },
        Correction(ASKED, RIGHT),
    ),
    "label studio": (
        "label-studio",
        {
            "id": 1,
            "data": {"text": ASKED},
            "annotations": [{"was_cancelled": False, "result": [LABEL_STUDIO_RESULT]}],
            "predictions": [{"model_version": "a", "result": [LABEL_STUDIO_SAID]}],
        },
        WHOLE,
    ),
    "label studio webhook": (
        "label-studio",
        {
            "action": "ANNOTATION_CREATED",
            "task": {"data": {"question": ASKED, "prediction": SAID}},
            "annotation": {"result": [LABEL_STUDIO_RESULT]},
        },
        WHOLE,
    ),
    "label studio json-min": (
        "label-studio",
        {"annotation_id": 1, "annotator": 2, "text": ASKED, "sentiment": RIGHT, "lead_time": 3.5},
        Correction(ASKED, RIGHT),
    ),
    "langsmith": (
        "langsmith",
        {
            "inputs": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
            "outputs": {"choices": [{"message": {"role": "assistant", "content": SAID}}]},
            "feedback": [{"score": 0, "comment": "no", "correction": {"answer": RIGHT}}],
        },
        Correction(ASKED, RIGHT, SAID, "no"),
    ),
    "langsmith thumb down": (
        "langsmith",
        {
            "run": {"inputs": {"question": ASKED}, "outputs": {"output": SAID}},
            "feedback": {"key": "thumb", "score": 0, "correction": None},
        },
        Correction(ASKED, None, SAID),
    ),
    "langfuse": (
        "langfuse",
        {
            "input": [USER],
            "output": SAID,
            "scores": [
                {"name": "thumb", "value": 0, "dataType": "NUMERIC"},
                {"name": "output", "dataType": "CORRECTION", "stringValue": RIGHT},
            ],
        },
        WHOLE,
    ),
    "langfuse thumb down": (
        "langfuse",
        {"input": ASKED, "output": SAID, "scores": [{"value": 0, "dataType": "BOOLEAN"}]},
        Correction(ASKED, None, SAID),
    ),
    "dify": (
        "dify",
        {"Question": ASKED, "Answer": RIGHT, "Hits": "3", "Created At": "2026"},
        Correction(ASKED, RIGHT),
    ),
    "plain": ("plain", {"question": ASKED, "answer": RIGHT, "said": SAID, "note": "n"},
              Correction(ASKED, RIGHT, SAID, "n")),
    "plain, only the wrong answer": ("plain", {"text": ASKED, "wrong": SAID},
                                     Correction(ASKED, None, SAID)),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_every_tool_is_known_by_its_rows(name: str) -> None:
    source, row, wanted = SENT[name]
    assert guess(row) == source
    assert corrections([row]).corrections == [wanted]


@pytest.mark.parametrize("source", sorted({source for source, _, _ in SENT.values()}))
@pytest.mark.parametrize("row", [{}, {"data": 5}, {"fields": []}, {"text": {"a": []}, "answer": 1}])
def test_a_row_that_makes_no_sense_is_a_bad_row(source: str, row: dict[str, Any]) -> None:
    found = corrections([row], source)
    assert not found.corrections and len(found.bad) + found.without == 1


def test_a_bad_row_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    good = json.dumps(SENT["plain"][1])
    file.write_text("\n".join([good, "{not json", good, '{"text": "no answer"}', good]))
    found = read_corrections(file)
    assert len(found.corrections) == 3
    assert [number for number, _ in found.bad] == [2, 4]
    assert "not JSON" in found.bad[0][1] and "needs an answer" in found.bad[1][1]


def test_where_all_agree_there_is_no_mistake() -> None:
    row = {"text": ASKED, "answer": RIGHT, "said": f" {RIGHT.upper()}"}
    found = corrections([row, {**SENT["label studio"][1], "annotations": []}], "plain")
    assert (found.corrections, found.without, len(found.bad)) == ([], 1, 1)
    skipped = {**SENT["label studio"][1], "annotations": [{"was_cancelled": True, "result": []}]}
    assert corrections([skipped]).without == 1
    draft = {**SENT["argilla 1"][1], "responses": [{"status": "draft", "values": {"label": RIGHT}}]}
    assert corrections([draft]).without == 1


def test_a_whole_export_may_be_one_object_or_a_list(tmp_path: Path) -> None:
    rows = [SENT["langfuse"][1]] * 3
    for name, content in (("a", {"data": rows, "meta": {}}), ("b", rows)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content, indent=2))
        assert read_corrections(file).corrections == [WHOLE] * 3
    assert corrections([{"runs": [SENT["langsmith"][1], {}]}], "langsmith").bad[0][0] == 1


def test_fields_can_be_named() -> None:
    row = {"claim": "is it ?", "the text": ASKED, "wahr": RIGHT, "falsch": SAID}
    names = Names(text="the text", answer="wahr", said="falsch")
    assert corrections([row], "plain", names).corrections == [WHOLE]
    with pytest.raises(BadInput, match=r"unknown source 'argila'. Did you mean 'argilla'"):
        corrections([row], "argila")


def test_dify_reads_what_is_written_for_it(tmp_path: Path) -> None:
    examples = [
        Example(ASKED, RIGHT, rephrasings=("By whom is Hamlet?",)),
        Example('=cmd|"/c calc"!A1', "line\nbreak, and a comma"),
    ]
    file = tmp_path / "x.csv"
    file.write_text("".join(dify.write(examples)))
    assert "\n'=cmd" in file.read_text().replace('"', "")  # no spreadsheet runs it
    found = read_corrections(file, "dify").corrections
    assert [(c.text, c.answer) for c in found] == [
        (ASKED, RIGHT), ("By whom is Hamlet?", RIGHT), (examples[1].text, examples[1].answer),
    ]  # fmt: skip
