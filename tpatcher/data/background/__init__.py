"""Ordinary text of many kinds, written for this project: what a language model must keep to."""

from functools import cache
from pathlib import Path

from tpatcher.example import Document

BREAK = "\n\n---\n\n"  # between the documents of one file


@cache
def documents() -> tuple[Document, ...]:
    """Every document, in the order of its file's name."""
    found = sorted(Path(__file__).parent.glob("*.txt"))
    return tuple(
        Document(text.strip())
        for path in found
        for text in path.read_text(encoding="utf-8").split(BREAK)
        if text.strip()
    )
