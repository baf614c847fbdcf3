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
RATIOS = (0.8, 0.1, 0.1)  # of the training file: D'_train, D_val, D_edit
KILT = ("fever-train-kilt.jsonl", "fever-dev-kilt.jsonl")
HALF = ("fever_train_sr.jsonl", "fever_dev_half_a.jsonl")


def fever(folder: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """The FEVER of a folder that holds either the KILT files or the partial ones.

    The KILT files are split as in the paper. Of the partial ones only development claims have
    rephrasings, so those that do are the edit set, the others D_test.
    """
    train, dev = locate(folder, KILT, HALF)
    if not train.name.startswith(HALF[0]):
        return fever_files(train, dev, seed=seed, skip_bad=skip_bad)
    held = read(dev, claim, skip_bad=skip_bad)
    return Split(
        train=read(train, claim, skip_bad=skip_bad),
        edit=[example for example in held if example.rephrasings],
        test=[example for example in held if not example.rephrasings],
    )


def fever_files(
    train: Path | str,
    test: Path | str,
    edit: Path | str | None = None,
    *,
    seed: int = 0,
    skip_bad: bool = False,
) -> Split:
    """The FEVER of these files; without one of edits, those are a tenth of the training claims."""
    rows = read(train, claim, skip_bad=skip_bad)
    held = read(test, claim, skip_bad=skip_bad)
    if edit is not None:
        return Split(train=rows, edit=read(edit, claim, skip_bad=skip_bad), test=held)
    rest, val, edits = by_ratio(rows, RATIOS, seed)
    return Split(train=rest, edit=edits, test=held, val=val)


def claim(row: Row) -> Example:
    """A claim and its label, in KILT's form (`input`, `output`) or the simple one."""
    stated = text(row, "claim", "input")
    labels = answers(row) if "output" in row else [text(row, "label")]
    if len(labels) > 1 or labels[0] not in LABELS:
        raise BadInput(f"the label must be {' or '.join(LABELS)}; found {', '.join(labels)}")
    rephrases = texts(row, "rephrases", "filtered_rephrases")
    return Example(stated, labels[0], rephrasings=others(stated, rephrases))
