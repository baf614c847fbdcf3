"""Do I know what another tool exports? Corrections that people made, one file for each tool."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tpatcher.data.formats import FORMATS, Numbered, Row, json_row
from tpatcher.data.reader import kind, numbered
from tpatcher.data.reports import argilla, dify, label_studio, langfuse, langsmith, plain
from tpatcher.data.reports.correction import Correction, Names
from tpatcher.errors import BadInput, unknown

__all__ = ["SOURCES", "Correction", "Found", "Names", "corrections", "guess", "read_corrections"]

# Each makes corrections of one row; of a row without one, or where all agree, it makes none.
SOURCES: dict[str, Callable[[Row, Names], list[Correction]]] = {
    "argilla": argilla.corrections,
    "label-studio": label_studio.corrections,
    "langsmith": langsmith.corrections,
    "langfuse": langfuse.corrections,
    "dify": dify.corrections,
    "plain": plain.corrections,
}
WRAPPERS = ("data", "runs", "records", "tasks", "results")  # what a list of rows may be inside of


@dataclass
class Found:
    """What was found in a file or a request."""

    corrections: list[Correction] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)  # rows that make no sense, and why
    without: int = 0  # rows that correct nothing: skipped ones, and where all agree


def read_corrections(
    path: Path | str, source: str | None = None, names: Names | None = None
) -> Found:
    """The corrections in a file that a tool has exported; a bad row keeps no other from coming."""
    return _find(_rows(Path(path)), source, names)


def corrections(
    rows: list[Row],
    source: str | None = None,
    names: Names | None = None,
    longest: int | None = None,
) -> Found:
    """The same for rows that are not in a file, such as what a webhook has sent.

    A row with a text of more than `longest` characters is a bad one.
    """
    return _find(enumerate(rows, 1), source, names, longest)


def guess(row: Row) -> str:
    """The tool that a row comes from, by its fields."""
    signs = {
        "argilla": argilla.SIGNS,
        "label-studio": label_studio.SIGNS,
        "langsmith": langsmith.SIGNS,
        "langfuse": langfuse.SIGNS,
        "dify": dify.SIGNS,
    }
    known = (name for name, sets in signs.items() if any(s <= row.keys() for s in sets))
    return next(known, "plain")


def _find(
    rows: Numbered, source: str | None, names: Names | None, longest: int | None = None
) -> Found:
    if source is not None and source not in SOURCES:
        raise unknown("source", source, SOURCES)
    found = Found()
    for number, row in rows:
        for one in [row] if isinstance(row, BadInput) else _unwrapped(row):
            try:
                if isinstance(one, BadInput):
                    raise one
                source = source or guess(one)
                made = SOURCES[source](one, names or Names())
                for correction in made:
                    correction.check_length(longest)
            except BadInput as error:
                found.bad.append((number, str(error)))
                continue
            found.corrections += made
            found.without += not made
    return found


def _rows(path: Path) -> Numbered:
    """The rows of a file. A .json may also be one object, in which the rows are."""
    if kind(path) not in FORMATS:
        raise BadInput(f"{path}: the name must end in {', '.join(FORMATS)} or one of them and .gz")
    if kind(path) == ".json" and path.suffix != ".gz" and path.is_file():
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
        whole = json_row(text) if text.lstrip().startswith("{") else None
        if isinstance(whole, dict):
            return iter(enumerate(_unwrapped(whole), 1))
    return numbered(path)


def _unwrapped(row: Row) -> Iterator[Row]:
    """The rows inside of a row, or itself."""
    for name in WRAPPERS:
        if isinstance(row.get(name), list) and all(isinstance(one, dict) for one in row[name]):
            yield from row[name]
            return
    yield row
