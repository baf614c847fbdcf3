"""Sets of facts to edit language models with: WikiBigEdit, QAEdit and HalluEditBench.

They are lists of edits and hold nothing to train or test a model with, so each is shared out: half
of the rows are edited, the questions of the others are ordinary traffic and D_test.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tpatcher.data.fields import others, text, texts
from tpatcher.data.formats import FORMATS, Row
from tpatcher.data.locate import locate
from tpatcher.data.reader import kind, read
from tpatcher.data.split import Split, by_ratio
from tpatcher.errors import BadInput
from tpatcher.example import Example, listed

RATIOS = (0.4, 0.1, 0.5)  # of the rows: D'_train, D_test, D_edit


def wikibigedit(path: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """WikiBigEdit (Thede et al. 2025) as LocFT has it: `wikibigedit.json`, or a folder with it.

    Its neighbours have the same relation: "In which league does FK Venta play?" An audit found
    that about a quarter of its rows are wrong.
    """
    return _shared_out(_files(path, "*wikibigedit*"), new_fact, seed, skip_bad)


def qaedit(path: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """QAEdit (Yang et al. 2025): `qaedit.json`, or a folder with it or `QAEdit*.json`.

    Its neighbours are questions about anything.
    """
    return _shared_out(_files(path, "*qaedit*", "QAEdit*"), question, seed, skip_bad)


def hallueditbench(path: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """HalluEditBench (Huang et al. 2025): a file of a topic, or a folder of such files (CSV).

    Beside each mistake stand a sister, whose answer is not known, and the fact as a question to
    be answered with yes and with no.
    """
    at = Path(path)
    files = [p for p in at.iterdir() if kind(p) == ".csv"] if at.is_dir() else [at]
    if not files:
        raise BadInput(f"{path}: needs the files of some topics, *.csv (plain or .gz); found none")
    return _shared_out(sorted(files), hallucination, seed, skip_bad)


def new_fact(row: Row) -> Example:
    """A row of WikiBigEdit, or of CounterFact in the same form."""
    near = Example(text(row, "locality_prompt"), text(row, "locality_ground_truth"))
    asked = text(row, "prompt")
    phrasings = others(asked, texts(row, "rephrase_prompt"))
    return Example(asked, text(row, "target_new"), rephrasings=phrasings, unrelated=(near,))


def question(row: Row) -> Example:
    """A row of QAEdit."""
    asked = text(row, "prompt")
    near = [Example(text(n, "loc"), text(n, "loc_ans")) for n in listed(row, "locality", dict)]
    phrasings = others(asked, texts(row, "rephrase"))
    return Example(asked, text(row, "target"), rephrasings=phrasings, unrelated=tuple(near))


def hallucination(row: Row) -> Example:
    """A row of HalluEditBench; its probes are those of its cells that are filled."""
    asked = text(row, "question")
    phrasings = others(asked, texts(row, "paraphrased_question"))
    return Example(asked, text(row, "object"), rephrasings=phrasings, unrelated=tuple(_probes(row)))


def _probes(row: Row) -> Iterator[Example]:
    for probe in texts(row, "locality_question"):
        yield Example(probe, "", kind="sisters")
    for name, right in (("yes_question", "Yes"), ("no_question", "No")):
        for probe in texts(row, name):
            yield Example(probe, right, kind="yesno")


def _files(path: Path | str, *patterns: str) -> list[Path]:
    """The file itself, or the one of a folder that has such a name."""
    at = Path(path)
    if at.is_dir() or kind(at) not in FORMATS:
        return locate(at, *((pattern,) for pattern in patterns))
    return [at]


def _shared_out(
    files: list[Path], make: Callable[[Row], Example], seed: int, skip_bad: bool
) -> Split:
    """Half of the rows to edit, the others to keep; a question that comes twice counts once."""
    found = [example for file in files for example in read(file, make, skip_bad=skip_bad)]
    rows = list({example.text: example for example in reversed(found)}.values())[::-1]
    train, test, edit = by_ratio(rows, RATIOS, seed)
    return Split(train=train, edit=edit, test=test)
