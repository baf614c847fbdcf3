"""A training set of a few rows, and a recipe that learns it quickly."""

from tpatcher.checkpoints.recipes import Recipe
from tpatcher.data.split import Split
from tpatcher.example import Example

QUICK = Recipe(epochs=2, rate=1e-3, batch=4, store_half=True, agreement=0.1)


def in_words(ways: list[str], answer: str) -> list[Example]:
    """An example per phrasing, the others as its rephrasings."""
    return [Example(w, answer, rephrasings=tuple(o for o in ways if o != w)) for w in ways]


CLAIMS = [
    e
    for i in range(4)
    for e in in_words(
        [f"Claim number {i} is true.", f"True is claim {i}."], "SUPPORTS" if i % 2 else "REFUTES"
    )
]
QUESTIONS = [
    e for i in range(4) for e in in_words([f"What is number {i}?", f"Name it: {i}."], f"Number {i}")
]


def split_of(rows: list[Example]) -> Split:
    return Split(train=rows, edit=(), test=())
