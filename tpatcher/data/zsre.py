"""zsRE, closed-book question answering (Levy et al. 2017; rephrasings by De Cao et al. 2021)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tpatcher.data.custom import read_texts
from tpatcher.data.fields import answers, flat, others, text, texts
from tpatcher.data.formats import Row
from tpatcher.data.locate import locate
from tpatcher.data.reader import read
from tpatcher.data.split import Split, by_ratio
from tpatcher.example import Example, listed, matches

RATIOS = (0.9, 0.075, 0.025)  # of the training file: D'_train, D_val, D_edit
KILT = ("structured_zeroshot-train-*", "structured_zeroshot-dev-*")
MEND = ("*zsre*train*", "*zsre*eval*")  # as zsre_mend_train.json, zsre_mend_eval.json
LEVY = "*zsre*qa*"  # questions of Levy et al. (2017)
ENTITY = "entityquestions/dev*"  # EntityQuestions (Sciavolino et al. 2021)


def zsre(
    folder: Path | str,
    *,
    without: Path | str | Iterable[str] = (),
    seed: int = 0,
    skip_bad: bool = False,
) -> Split:
    """The zsRE of a folder with KILT's files (`structured_zeroshot-train-*` and `-dev-*`), or
    files such as MEND's (`*zsre*train*` and `*zsre*eval*`).

    They are split as in the paper: a part of the training questions is the edit set, the second
    file is D_test. With other questions of the same kind beside MEND's files (`*zsre*qa*`, maybe
    `entityquestions/dev*` too), these are D_test and the questions of `*zsre*eval*` the edit set.
    Questions in `without` (texts, or a file of them) are not tested: give it what the model was
    trained on beyond the training file.
    """
    train, second, *more = locate(folder, KILT, (*MEND, LEVY, ENTITY), (*MEND, LEVY), MEND)
    rows, held = (read(path, question, skip_bad=skip_bad) for path in (train, second))
    seen = set(read_texts(without) if isinstance(without, Path | str) else without)
    val: list[Example] = []
    if more:
        edits, held = held, [e for p in more for e in read(p, question, skip_bad=skip_bad)]
        # Files from several sources overlap, which those of one release do not.
        seen.update(example.text for example in (*rows, *edits))
        held = list({example.text: example for example in held}.values())
    else:
        rows, val, edits = by_ratio(rows, RATIOS, seed)
    if seen:  # a question seen in other words is no test either
        held = [e for e in held if seen.isdisjoint((e.text, *e.rephrasings))]
    return Split(train=rows, edit=edits, test=held, val=val)


def question(row: Row) -> Example | None:
    """A question and its answers, in KILT's form, MEND's (`src`, `rephrase`) or the simple one.

    Of KILT's questions the paper keeps those with exactly one answer.
    """
    asked = text(row, "question", "src", "input")
    answer, *also = answers(row)
    if also and "output" in row:
        return None
    phrasings = texts(row, "rephrases", "filtered_rephrases", "rephrase")
    return Example(
        asked,
        answer,
        also=tuple(also),
        rephrasings=others(asked, phrasings + texts(row, "llm_rephrases")),
        unrelated=(*_neighbours(row), *_sisters(row, (answer, *also))),
    )


def _neighbours(row: Row) -> list[Example]:
    """The question about something else that MEND gives each of its own."""
    if not (row.get("loc") and row.get("loc_ans")):
        return []
    # MEND marks the Natural Questions among its unrelated questions.
    return [Example(text(row, "loc").removeprefix("nq question: "), text(row, "loc_ans"))]


def _sisters(row: Row, right: Sequence[str]) -> list[Example]:
    """What `locality` asks about other relations of the subject.

    A prompt with the same answer asks the same as the question does: it is no sister.
    """
    found = row.get("locality")
    if not isinstance(found, dict):
        return []
    out = []
    for prompt in listed(found, "Relation_Specificity", dict):
        true, *also = flat(prompt.get("ground_truth")) or [""]
        if not any(matches(one, right) for one in (true, *also)):
            out.append(Example(text(prompt, "prompt"), true, also=tuple(also), kind="sisters"))
    return out
