"""LangSmith: runs with feedback, exported or sent by the webhook of a rule."""

from typing import Any

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, kept, words
from tpatcher.errors import BadInput

SIGNS = ({"inputs", "outputs"}, {"run", "feedback"}, {"run_id", "correction"})


def corrections(row: Row, names: Names) -> list[Correction]:
    """What the feedback to a run says: a correction, or only that the answer was wrong.

    Feedback without its run names no text, so export runs with their feedback.
    """
    found = row.get("run")
    run = found if isinstance(found, dict) else row
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if inputs is None:
        raise BadInput(
            "this feedback comes without the inputs of its run, so nobody knows what was asked; "
            "export runs with their feedback"
        )
    text = names.pick_text(inputs) if isinstance(inputs, dict) and names.text else None
    text = text or words(inputs, asked=True)
    if text is None:
        raise BadInput("the inputs of this run hold no text that is known; name the field")
    said, made = words(outputs), []
    for one in _feedback(row, run):
        answer = words(one.get("correction"))
        if answer is None and one.get("score") not in (0, False, -1):
            continue
        made.append(Correction(text, answer, said, words(one.get("comment"))))
    if not made and (answer := words(run.get("reference_outputs", run.get("reference")))):
        made.append(Correction(text, answer, said))
    return kept(made)


def _feedback(row: Row, run: Row) -> list[dict[str, Any]]:
    found = row.get("feedback", run.get("feedback", row if "correction" in row else []))
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]
