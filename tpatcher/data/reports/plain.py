"""Rows with a text and its right answer, or what was wrong about it."""

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, kept, words
from tpatcher.errors import BadInput


def corrections(row: Row, names: Names) -> list[Correction]:
    """One correction a row; it needs a right answer, or the wrong one."""
    answer, said = names.pick_answer(row), names.pick_said(row)
    if answer == said and names.said is None and "said" not in row and "wrong" not in row:
        said = None  # one field that either name would fit is the right answer
    if answer is None and said is None:
        raise BadInput(f"a row needs an answer, or what was said; this one has {', '.join(row)}")
    text = names.pick_text(row)
    return kept([Correction(text, answer, said, words(row.get("note", row.get("comment"))))])
