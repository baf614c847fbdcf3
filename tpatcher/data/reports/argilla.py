"""Argilla: records with responses, exported as JSON or sent by a webhook."""

from typing import Any

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, kept, words
from tpatcher.errors import BadInput

SIGNS = ({"fields", "responses"}, {"fields", "suggestions"}, {"type", "timestamp", "data"})
STATED = ("submitted", None)  # drafts and discarded responses say nothing


def corrections(row: Row, names: Names) -> list[Correction]:
    """What the responses to a record say; in an event, what its own response says."""
    if isinstance(row.get("data"), dict):  # a webhook's event
        row = _of_event(row["data"])
    fields, given = row.get("fields"), row.get("responses")
    if not isinstance(fields, dict):
        raise BadInput(f"a record needs 'fields'; this one has {', '.join(row)}")
    answers = _answers(given)
    if not answers:
        return []
    answer = names.pick_answer(answers)
    if answer is None and len(answers) == 1:
        answer = next(iter(answers.values()))
    if answer is None:
        questions = ", ".join(answers)
        raise BadInput(f"which question corrects the answer is not clear; answered: {questions}")
    suggested = {name: _value(one) for name, one in _named(row.get("suggestions")).items()}
    said = next((suggested[n] for n, a in answers.items() if a == answer and n in suggested), None)
    said = said if said is not None else names.pick_said(fields)
    return kept([Correction(names.pick_text(fields), answer, words(said))])


def _of_event(data: Row) -> Row:
    """The record of an event: of a response, which holds it, or the record itself."""
    if not isinstance(data.get("record"), dict):
        return data
    if data.get("status") not in STATED:
        return {**data["record"], "responses": {}}
    return {**data["record"], "responses": data.get("values")}


def _answers(given: Any) -> dict[str, str]:
    """The first answer to each question, whichever shape a version of Argilla gives it."""
    if isinstance(given, list):  # one element a person: {"values": …, "status": …}
        said = [one for one in given if isinstance(one, dict) and one.get("status") in STATED]
        given = said[0].get("values") if said else None
    found: dict[str, str] = {}
    for name, value in _named(given).items():
        value = value if isinstance(value, list) else [value]
        told = [v for v in value if not isinstance(v, dict) or v.get("status") in STATED]
        if told and (text := words(_value(told[0]))):
            found[name] = text
    return found


def _named(given: Any) -> dict[str, Any]:
    if isinstance(given, list):  # suggestions of version 1: [{"question_name": …, "value": …}]
        pairs = [(one.get("question_name"), one) for one in given if isinstance(one, dict)]
        return {name: one for name, one in pairs if isinstance(name, str)}
    return given if isinstance(given, dict) else {}


def _value(one: Any) -> Any:
    return one.get("value") if isinstance(one, dict) else one
