"""Reading a data file row by row, with the file and line of whatever is wrong in it."""

import gzip
import io
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tpatcher.data.formats import FORMATS, Numbered, Row
from tpatcher.errors import BadInput

T = TypeVar("T")


class SkippedLines(UserWarning):
    """Bad lines were left out of a file; `messages` has "file:line: reason" for each."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(f"bad lines skipped: {len(messages)}; the first is {messages[0]}")
        self.messages = messages


def read(path: Path | str, make: Callable[[Row], T | None], *, skip_bad: bool = False) -> list[T]:
    """What `make` returns for each row; rows for which it returns None are left out.

    A line that cannot be parsed, or of which `make` raises a `BadInput`, is a `BadInput` that says
    "file:line: reason"; with `skip_bad` all of them end up in one `SkippedLines` warning instead.
    """
    made, skipped, rows = list[T](), list[str](), 0
    for number, row in numbered(Path(path)):
        rows += 1
        try:
            if isinstance(row, BadInput):
                raise row
            item = make(row)
        except BadInput as bad:
            skipped.append(f"{path}:{number}: {bad}")
            if not skip_bad:
                raise BadInput(skipped[0]) from bad
        else:
            if item is not None:
                made.append(item)
    if rows == 0:
        raise BadInput(f"{path}: empty, there is not one row in it")
    if rows == len(skipped):
        raise BadInput(f"{path}: every row is bad; the first is {skipped[0]}")
    if skipped:
        warnings.warn(SkippedLines(skipped), stacklevel=2)
    return made


def numbered(path: Path) -> Numbered:
    """The rows of a file. Its name tells the format, its first bytes tell if it is gzipped."""
    if kind(path) not in FORMATS:
        raise BadInput(f"{path}: the name must end in {', '.join(FORMATS)} or one of them and .gz")
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            # Bytes that are not UTF-8 come in as lone surrogates, which each format reports with
            # their line, so that one bad line need not end the reading. Only "\n" ends a line:
            # a CSV cell may hold "\r", a JSON text U+2028.
            text = io.TextIOWrapper(
                gzip.GzipFile(fileobj=raw) if zipped else raw,
                encoding="utf-8-sig",
                errors="surrogateescape",
                newline="\n",
            )
            yield from FORMATS[kind(path)](text)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def kind(path: Path | str) -> str:
    """The end of a file's name that says its format, such as ".csv" of "mistakes.csv.gz"."""
    return Path(Path(path).name.removesuffix(".gz")).suffix.lower()
