"""CounterFact, facts to be replaced by false ones (Meng et al. 2022)."""

from dataclasses import replace
from pathlib import Path

from tpatcher.data.fields import inner, others, text, texts
from tpatcher.data.formats import Row
from tpatcher.data.locate import locate
from tpatcher.data.reader import read
from tpatcher.data.split import Split, by_ratio
from tpatcher.example import Example

PARTS = ("counterfact-train.json", "counterfact-val.json")
WHOLE = ("counterfact.json",)


def counterfact(folder: Path | str, *, seed: int = 0, skip_bad: bool = False) -> Split:
    """The CounterFact of a folder that holds the original file or the compact two.

    The edit set asks for the false answers; training and test sets hold the true ones, which is
    what a model should go on saying.
    """
    first, *second = locate(folder, PARTS, WHOLE)
    facts = read(first, rewrite, skip_bad=skip_bad)
    if second:
        edits = read(second[0], rewrite, skip_bad=skip_bad)
        train, _, test = by_ratio(facts, (0.9, 0.0, 0.1), seed)
    else:
        train, test, edits = by_ratio(facts, seed=seed)
    return Split(
        train=[true for true, _ in train],
        edit=[false for _, false in edits],
        test=[true for true, _ in test],
    )


def rewrite(row: Row) -> tuple[Example, Example]:
    """A fact as it is and as it shall be, in the original nested form or the compact one."""
    true, wanted = _nested(row) if "requested_rewrite" in row else _compact(row)
    true = replace(true, rephrasings=others(true.text, true.rephrasings))
    return true, replace(true, answer=wanted)


def _compact(row: Row) -> tuple[Example, str]:
    """One prompt, one rephrasing and one neighbour a row."""
    near = Example(text(row, "locality_prompt"), text(row, "locality_ground_truth"))
    prompt, answer, wanted = (text(row, n) for n in ("prompt", "ground_truth", "target_new"))
    phrasings = tuple(texts(row, "rephrase_prompt"))
    return Example(prompt, answer, rephrasings=phrasings, unrelated=(near,)), wanted


def _nested(row: Row) -> tuple[Example, str]:
    """A prompt with a gap for its subject; the neighbours share the true answer."""
    asked = inner(row, "requested_rewrite")
    answer, wanted = (text(inner(asked, name), "str") for name in ("target_true", "target_new"))
    prompt = text(asked, "prompt").replace("{}", text(asked, "subject"))
    near = tuple(Example(p, answer) for p in texts(row, "neighborhood_prompts"))
    phrasings = tuple(texts(row, "paraphrase_prompts"))
    return Example(prompt, answer, rephrasings=phrasings, unrelated=near), wanted
