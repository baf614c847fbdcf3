"""Fixes as files that other tools read."""

import json
from collections.abc import Callable, Iterable, Iterator

from tpatcher.data.reports import dify
from tpatcher.example import Example


def jsonl(examples: Iterable[Example]) -> Iterator[str]:
    """One example a line, as `data.read_examples` reads them."""
    for example in examples:
        yield json.dumps(example.to_json(), ensure_ascii=False) + "\n"


EXPORTS: dict[str, Callable[[Iterable[Example]], Iterator[str]]] = {
    "jsonl": jsonl,
    "dify": dify.write,
}
