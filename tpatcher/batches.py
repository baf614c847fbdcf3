"""Sequences in parts, none of them larger than a net or a database takes at once."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in order, `size` at a time; the last part may be smaller.

    >>> list(batches("abcde", 2))
    ['ab', 'cd', 'e']
    """
    for start in range(0, len(items), size):
        yield items[start : start + size]
