"""The sets of WILD, on which language models are edited in the 2025 and 2026 papers.

ZsRE, CounterFact and WikiBigEdit as LocFT has them, QAEdit (Yang et al. 2025) and HalluEditBench
(Huang et al. 2025): each row becomes an `Example` with its rephrasing and what is unrelated to it.
"""

from collections.abc import Callable
from pathlib import Path

from tpatcher.data.fields import text, texts
from tpatcher.data.formats import Row
from tpatcher.data.reader import read
from tpatcher.errors import BadInput, unknown
from tpatcher.example import Example

NQ = "nq question: "  # how ZsRE marks the questions that are unrelated


def wild(name: str, path: Path | str, *, skip_bad: bool = False) -> list[Example]:
    """The examples of a set, in its order; of a folder, the files in the order of their names."""
    if name not in SETS:
        raise unknown("set", name, SETS)
    at = Path(path)
    files = sorted(p for p in at.iterdir() if p.is_file()) if at.is_dir() else [at]
    named = [p for p in files if p.name.split(".")[0] == name]  # a folder of all the sets
    found = [e for file in named or files for e in read(file, SETS[name], skip_bad=skip_bad)]
    if not found:
        raise BadInput(f"{path} holds no examples of {name}")
    return list({e.text: e for e in reversed(found)}.values())[::-1]  # the first of each text


def _zsre(row: Row) -> Example:
    unrelated = Example(text(row, "loc").removeprefix(NQ), text(row, "loc_ans"))
    return Example(
        text(row, "src"),
        text(row, "alt"),
        rephrasings=(text(row, "rephrase"),),
        unrelated=(unrelated,),
    )


def _prompt(row: Row) -> Example:
    """A row of CounterFact or WikiBigEdit."""
    unrelated = Example(text(row, "locality_prompt"), text(row, "locality_ground_truth"))
    return Example(
        text(row, "prompt"),
        text(row, "target_new"),
        rephrasings=(text(row, "rephrase_prompt"),),
        unrelated=(unrelated,),
    )


def _qaedit(row: Row) -> Example:
    unrelated = [Example(text(one, "loc"), text(one, "loc_ans")) for one in row["locality"]]
    return Example(
        text(row, "prompt"),
        text(row, "target"),
        rephrasings=(text(row, "rephrase"),),
        unrelated=tuple(unrelated),
    )


def _hallueditbench(row: Row) -> Example:
    about = texts(row, "locality_question")
    return Example(
        text(row, "question"),
        text(row, "object"),
        rephrasings=tuple(texts(row, "paraphrased_question")),
        unrelated=tuple(Example(one, "?") for one in about),  # unchanged, whatever it is
    )


SETS: dict[str, Callable[[Row], Example]] = {
    "zsre": _zsre,
    "counterfact": _prompt,
    "wikibigedit": _prompt,
    "qaedit": _qaedit,
    "hallueditbench": _hallueditbench,
}
