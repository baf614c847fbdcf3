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
    exclude: Path | str | Iterable[str] = (),
    seed: int = 0,
    skip_bad: bool = False,
) -> Split:
    """The zsRE of a folder with KILT's files (`structured_zeroshot-train-*` and `-dev-*`), or
    files such as MEND's (`*zsre*train*` and `*zsre*eval*`).

    They are split as in the paper: a part of the training questions is the edit set, the second
    file is D_test. KILT's questions with several answers are left out after that, as its runs did
    (its text says before): of 244,173 and 27,644 questions the paper has 5,317 to edit, 15,982 for
    validation and 24,051 to test. With other questions of the same kind beside MEND's files
    (`*zsre*qa*`, maybe `entityquestions/dev*` too), these are D_test and the questions of
    `*zsre*eval*` the edit set. Questions in `exclude` (texts, or a file of them) are not tested:
    give it what the model was trained on beyond the training file.
    """
    train, second, *more = locate(folder, KILT, (*MEND, LEVY, ENTITY), (*MEND, LEVY), MEND)
    rows, held = (read(path, questions, skip_bad=skip_bad) for path in (train, second))
    seen = set(read_texts(exclude) if isinstance(exclude, Path | str) else exclude)
    val: list[Example] = []
    if more:
        train_set, edits = flatten(rows), flatten(held)
        test = flatten(part for p in more for part in read(p, questions, skip_bad=skip_bad))
        # Files from several sources overlap, which those of one release do not.
        seen.update(example.text for example in (*train_set, *edits))
        test = list({example.text: example for example in test}.values())
    else:
        train_set, val, edits = map(flatten, by_ratio(rows, RATIOS, seed))
        test = flatten(held)
    if seen:  # a question seen in other words is no test either
        test = [e for e in test if seen.isdisjoint((e.text, *e.rephrasings))]
    return Split(train=train_set, edit=edits, test=test, val=val)


def flatten(parts: Iterable[Sequence[Example]]) -> list[Example]:
    """The questions of all rows; rows that are left out have none."""
    return [example for part in parts for example in part]


def questions(row: Row) -> list[Example]:
    """A row's question; none if it is KILT's and has several answers, of those with evidence.

    As in the paper's runs they are counted as they are written: "A" and "a" are two.
    """
    outputs = [o for o in listed(row, "output", dict) if "answer" in o]
    cited = [o for o in outputs if "provenance" in o] or outputs
    return [] if len(cited) > 1 else [question(row)]


def question(row: Row) -> Example:
    """A question and its answers, in KILT's form, MEND's (`src`, `rephrase`) or the simple one."""
    asked = text(row, "question", "src", "input")
    answer, *also = answers(row)
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
