"""Dify: annotations of an app, as its logs and annotations page exports and imports them in CSV."""

import csv
import io
from collections.abc import Iterable, Iterator

from tpatcher.data.formats import Row
from tpatcher.data.reports.correction import Correction, Names, words
from tpatcher.errors import BadInput
from tpatcher.example import Example

SIGNS = ({"Question", "Answer"}, {"question", "answer", "hits"})
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run, were it not quoted


def corrections(row: Row, names: Names) -> list[Correction]:
    """The question and the answer of an annotation; Dify keeps no wrong answer with it."""
    cells = {str(name).strip().lower(): value for name, value in row.items()}
    text = words(cells.get(names.text or "question"))
    answer = words(cells.get(names.answer or "answer"))
    if text is None or answer is None:
        raise BadInput(f"an annotation needs question and answer; found {', '.join(row)}")
    return [Correction(_unquoted(text), _unquoted(answer))]


def write(examples: Iterable[Example]) -> Iterator[str]:
    """Examples as Dify's bulk import reads them, line by line; each rephrasing is a question."""
    yield from table(
        ("question", "answer"),
        ((text, e.answer) for e in examples for text in (e.text, *e.rephrasings)),
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a CSV file whose cells a spreadsheet takes for texts."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow([quoted(cell) for cell in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def quoted(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula.

    >>> quoted("=1+1"), quoted("1+1")
    ("'=1+1", '1+1')
    """
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _unquoted(cell: str) -> str:
    """The text that `quoted` was given."""
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(FORMULA) else cell
