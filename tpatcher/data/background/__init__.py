"""Is it ordinary text? Of many kinds, written for this project: what a model must keep to."""

import re
from functools import cache
from pathlib import Path

from tpatcher.example import Document

HERE = Path(__file__).parent
BREAK = "\n\n---\n\n"  # between the documents of one file
OTHER_LANGUAGES = "06-languages.txt"
TOPIC = "{}"  # in a form, where the topic stands
EVERY = 3  # of all questions, those that are asked: each takes a model's time


@cache
def documents() -> tuple[Document, ...]:
    """Every document, in the order of its file's name."""
    return tuple(
        Document(text.strip())
        for path in sorted(HERE.glob("[0-9]*.txt"))
        for text in path.read_text(encoding="utf-8").split(BREAK)
        if text.strip()
    )


@cache
def questions() -> tuple[str, ...]:
    """Short questions: a third of the forms of every section, asked about its topics."""
    sections = (HERE / "questions.txt").read_text(encoding="utf-8").split("\n## ")[1:]
    return tuple(text for section in sections for text in _asked(section))[::EVERY]


@cache
def words() -> frozenset[str]:
    """The words of ordinary English that documents and questions have, in lower case."""
    texts = (p.read_text("utf-8") for p in HERE.glob("*.txt") if p.name != OTHER_LANGUAGES)
    return frozenset(word for text in texts for word in re.findall(r"\w+", text.lower()))


def _asked(section: str) -> list[str]:
    """The questions of one section: a heading, its forms line by line, and its topics."""
    _, *forms, topics = section.strip().splitlines()
    names = topics.removeprefix("- ").split(" | ")
    return [form.replace(TOPIC, name) for name in names for form in forms]
