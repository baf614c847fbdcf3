"""Langfuse: traces with scores, of which a correction is one."""

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, kept, words
from tpatcher.errors import BadInput

SIGNS = (
    {"input", "output", "scores"},
    {"trace", "dataType"},
    {"traceId", "dataType"},
    {"input", "correctedOutput"},
)


def corrections(row: Row, names: Names) -> list[Correction]:
    """What the scores of a trace say: a corrected output, or only that the answer was bad."""
    found = row.get("trace")
    trace = found if isinstance(found, dict) else row
    if trace.get("input") is None:
        raise BadInput(
            "this score comes without the input of its trace, so nobody knows what was asked; "
            "export traces with their scores"
        )
    text, said = words(trace["input"], asked=True), words(trace.get("output"))
    if text is None:
        raise BadInput("the input of this trace holds no text that is known")
    scores = row.get("scores", [row] if "dataType" in row else [])
    made = []
    for score in scores:
        if not isinstance(score, dict):
            continue
        note = words(score.get("comment"))
        if score.get("dataType") == "CORRECTION":
            right = score.get("longStringValue", score.get("stringValue", score.get("value")))
            made.append(Correction(text, words(right), said, note))
        elif score.get("value") in (0, False, -1):  # a thumb down
            made.append(Correction(text, None, said, note))
    if (right := words(trace.get("correctedOutput"))) is not None:
        made.append(Correction(text, right, said))
    told = [one for one in made if one.answer is not None]
    return kept(told[-1:] or made[-1:])
