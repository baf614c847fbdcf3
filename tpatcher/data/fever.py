"""FEVER, closed-book fact checking (Thorne et al. 2018; with rephrasings, De Cao et al. 2021)."""

from pathlib import Path

from tpatcher.data.fields import answers, others, text, texts
from tpatcher.data.formats import Row
from tpatcher.data.locate import locate
from tpatcher.data.reader import read
from tpatcher.data.split import Split, by_ratio
from tpatcher.errors import BadInput
from tpatcher.example import Example

LABELS = ("SUPPORTS", "REFUTES")
FILES = ("fever*train*", "fever*dev*")  # as fever-train-kilt.jsonl, fever-dev-kilt.jsonl.gz


def fever(folder: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """The FEVER of a folder with a file `fever*train*` and a file `fever*dev*`, as KILT's.

    They are split as in the paper: a tenth of the training claims is the edit set. But edits are
    tested on their rephrasings: where more development claims have some than training claims do,
    those development claims are the edit set, and the others are D_test.
    """
    train, dev = (read(path, claim, skip_bad=skip_bad) for path in locate(folder, FILES))
    rephrased = [example for example in dev if example.rephrasings]
    if len(rephrased) > sum(bool(example.rephrasings) for example in train):
        rest = [example for example in dev if not example.rephrasings]
        return Split(train=train, edit=rephrased, test=rest)
    train, val, edit = by_ratio(train, seed=seed)
    return Split(train=train, edit=edit, test=dev, val=val)


def claim(row: Row) -> Example:
    """A claim and its label, in KILT's form (`input`, `output`) or the simple one."""
    stated = text(row, "claim", "input")
    labels = answers(row) if "output" in row else [text(row, "label")]
    if len(labels) > 1 or labels[0] not in LABELS:
        raise BadInput(f"the label must be {' or '.join(LABELS)}; found {', '.join(labels)}")
    rephrases = texts(row, "rephrases", "filtered_rephrases")
    return Example(stated, labels[0], rephrasings=others(stated, rephrases))
