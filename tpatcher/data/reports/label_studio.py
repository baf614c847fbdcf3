"""Label Studio: annotated tasks, exported as JSON or JSON-MIN, or sent by a webhook."""

from typing import Any

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, kept, words
from tpatcher.errors import BadInput

SIGNS = ({"data", "annotations"}, {"action", "annotation", "task"}, {"annotation_id", "annotator"})
ANSWERS = ("choices", "text", "taxonomy", "rating", "number")  # what a result's value may hold


def corrections(row: Row, names: Names) -> list[Correction]:
    """What the newest annotation of a task says; one that was skipped says nothing."""
    if "annotation" in row and "task" in row:  # a webhook's event
        if not str(row.get("action", "")).endswith(("CREATED", "UPDATED")):
            return []
        row = {**row["task"], "annotations": [row["annotation"]]}
    if "annotations" not in row:  # JSON-MIN: results beside the data
        return _smallest(row, names)
    data = row.get("data")
    if not isinstance(data, dict):
        raise BadInput(f"a task needs 'data'; this one has {', '.join(row)}")
    given = [a for a in row["annotations"] or () if isinstance(a, dict)]
    annotated = [a for a in given if not a.get("was_cancelled")]
    if not annotated:
        return []
    results = _results(annotated[-1])
    answer = names.pick_answer(results)
    if answer is None and len(results) == 1:
        answer = next(iter(results.values()))
    if answer is None:
        what = ", ".join(results) or "nothing"
        raise BadInput(f"which result corrects the answer is not clear; there is: {what}")
    predicted = [_results(p) for p in row.get("predictions") or () if isinstance(p, dict)]
    name = next(n for n, a in results.items() if a == answer)
    said = next((p[name] for p in predicted if name in p), None) or names.pick_said(data)
    return kept([Correction(names.pick_text(data), answer, said)])


def _smallest(row: Row, names: Names) -> list[Correction]:
    answer = names.pick_answer(row)
    if answer is None:
        raise BadInput(f"no field of this task holds an answer; it has {', '.join(row)}")
    said = names.pick_said({k: v for k, v in row.items() if words(v) != answer})
    return kept([Correction(names.pick_text(row), answer, said)])


def _results(annotation: Any) -> dict[str, str]:
    """What an annotation says, by the name of the tag that it was given with."""
    found: dict[str, str] = {}
    for one in annotation.get("result") or ():
        value = one.get("value") if isinstance(one, dict) else None
        if not isinstance(value, dict):
            continue
        text = next((w for key in ANSWERS if (w := words(value.get(key)))), None)
        if text is not None:
            found.setdefault(str(one.get("from_name", one.get("type"))), text)
    return found
