"""A user's own examples and texts."""

from pathlib import Path

from tpatcher.data.fields import text
from tpatcher.data.formats import FORMATS, Row
from tpatcher.data.reader import kind, read
from tpatcher.data.split import Split, by_ratio
from tpatcher.errors import BadInput
from tpatcher.example import Conversation, Document, Example

TEXT = ("text", "question", "claim", "sentence", "input", "src")


def read_examples(path: Path | str, *, skip_bad: bool = False) -> list[Example]:
    """The examples of a file with `text`, `answer` and optional `also` and `rephrasings`.

    In JSON a text may be a list of messages, and `match` say how answers are compared.
    In CSV and TSV a bar separates the elements of a list: `rephrasings` may be "one|another".
    """
    make = _of_cells if kind(path) in (".csv", ".tsv") else _of_json
    return read(path, make, skip_bad=skip_bad)


def read_texts(path: Path | str, *, skip_bad: bool = False) -> list[str]:
    """The texts of a file: one a line in a .txt, elsewhere the field `text` or its like.

    A row may be a conversation (`messages`), or a `document`, of which every position counts.
    """
    return read(path, _text_of, skip_bad=skip_bad)


def _text_of(row: Row) -> str:
    if "messages" in row or isinstance(row.get("text"), list):
        return Conversation(row.get("messages") or row["text"])
    return Document(text(row, "document")) if "document" in row else text(row, *TEXT)


def own(path: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """A user's dataset: a folder with train, edit and test files, or one file to split."""
    if not Path(path).is_dir():
        train, test, edit = by_ratio(read_examples(path, skip_bad=skip_bad), seed=seed)
        return Split(train=train, edit=edit, test=test)
    names = [kind + zipped for kind in FORMATS for zipped in ("", ".gz")]
    parts: dict[str, list[Example]] = {}
    for part in ("train", "edit", "test"):
        found = [p for name in names if (p := Path(path) / f"{part}{name}").is_file()]
        if len(found) != 1:
            there = " and ".join(p.name for p in found) or "none"
            raise BadInput(f"{path}: needs one file {part}.jsonl (or .csv, …); found {there}")
        parts[part] = read_examples(found[0], skip_bad=skip_bad)
    return Split(**parts)


def _of_json(row: Row) -> Example:
    """An example from a JSON object; its text and its answer must not be blank."""
    for name in ("text", "answer"):
        if name == "answer" or not isinstance(row.get(name), list):  # a list of messages
            text(row, name)
    return Example.from_json(row)


def _of_cells(row: Row) -> Example:
    """An example from a line of a table, where a list is one cell."""
    also, rephrasings = (
        tuple(part for p in row.get(name, "").split("|") if (part := p.strip()))
        for name in ("also", "rephrasings")
    )
    return Example(text(row, "text"), text(row, "answer"), also=also, rephrasings=rephrasings)
