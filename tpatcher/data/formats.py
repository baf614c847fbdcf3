"""The formats a data file can have: JSON Lines, a JSON array, CSV, TSV, one text a line."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TextIO

from tpatcher.errors import BadInput

Row = dict[str, Any]
Numbered = Iterator[tuple[int, Row | BadInput]]  # a line's number, and its row or what is wrong


def json_rows(text: TextIO) -> Numbered:
    """One object a line, or one array of objects."""
    first = True
    for number, line in enumerate(text, 1):
        if first and line.lstrip().startswith("["):
            yield from _json_array(line + text.read(), number)
        elif line.strip():
            yield number, json_row(line.rstrip())
        first = first and not line.strip()


def json_row(text: str) -> Row | BadInput:
    """The object that a text holds."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        return _unsound(text) or BadInput(f"not JSON: {error.msg} at column {error.pos + 1}")
    except (ValueError, RecursionError) as error:  # numbers or nesting beyond Python's limits
        return BadInput(f"not usable JSON: {error}")
    if not isinstance(row, dict):
        return BadInput(f"not a JSON object: {row!r:.60}")
    # An escaped surrogate may lack its other half: then only the decoded text shows it.
    escaped = "\\ud" in text.lower()
    return _unsound(json.dumps(row, ensure_ascii=False) if escaped else text) or row


def _json_array(text: str, number: int) -> Numbered:
    """The objects of an array, one after another so that each knows its line."""
    between, decoder = re.compile(r"[\s,]*"), json.JSONDecoder()
    at = text.index("[") + 1
    while (start := between.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        number += text.count("\n", at, start)
        if text[start] == "]":
            return
        try:
            _, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            yield number, BadInput(f"not JSON from here to the end of the file: {error}")
            return
        yield number, json_row(text[start:at])
        number += text.count("\n", start, at)
    yield number, BadInput("the array has no end: the file was cut off")


def table(text: TextIO, delimiter: str) -> Numbered:
    """Cells under a first line that names the columns; missing last cells are left out."""
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        number = reader.line_num + 1  # where the row begins: a quoted cell may span lines
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadInput(f"{error} (from line {number} to {reader.line_num})")
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if not header:
            header = [cell.strip() for cell in cells]
        elif len(cells) > len(header):
            yield number, BadInput(f"{len(cells)} cells, but {len(header)} columns")
        else:
            row = dict(zip(header, cells, strict=False))
            yield number, _unsound(delimiter.join(cells)) or row


def plain(text: TextIO) -> Numbered:
    """One text a line, as rows that have a `text` only."""
    for number, line in enumerate(text, 1):
        if line.strip():
            yield number, _unsound(line) or {"text": line.strip()}


def _unsound(text: str) -> BadInput | None:
    """What is wrong with a text that UTF-8 cannot hold: a tokenizer would choke on it later."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadInput(f"not UTF-8 at character {error.start + 1}")
    return None


FORMATS: dict[str, Callable[[TextIO], Numbered]] = {
    ".jsonl": json_rows,
    ".json": json_rows,
    ".csv": partial(table, delimiter=","),
    ".tsv": partial(table, delimiter="\t"),
    ".txt": plain,
}
