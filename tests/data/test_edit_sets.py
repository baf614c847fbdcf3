"""WikiBigEdit, QAEdit and HalluEditBench: their rows, their probes, and how they are shared out."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tpatcher.data import dataset
from tpatcher.data.edit_sets import hallucination, new_fact, question
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.sme import PROBES

HALLUCINATION = {
    "question": "What is the climate of Lima?",
    "object": "desert",
    "output_some_model": "BWh",
    "paraphrased_question": "How is Lima's climate classified?",
    "yes_question": "Is the climate of Lima a desert one?",
    "no_question": "Is the climate of Lima BWh?",
    "locality_question": "What is the capital of Peru?",
    "question_2hop": "What falls there?",
}


def fact(i: int = 0) -> dict[str, Any]:
    """A row of WikiBigEdit."""
    return {
        "prompt": f"In which league does club {i} play?",
        "target_new": "III Lyga",
        "subject": f"club {i}",
        "rephrase_prompt": f"What is the league of club {i}?",
        "locality_prompt": "In which league does FK Venta play?",
        "locality_ground_truth": "Latvian Higher League",
    }


def asked(i: int = 0) -> dict[str, Any]:
    """A row of QAEdit."""
    near = [{"loc": "who sings", "loc_ans": "Z"}, {"loc": "who plays", "loc_ans": "Y"}]
    names = {"prompt": f"When was {i}?", "target": "1938", "rephrase": f"What year was {i}?"}
    return {"id": i, "source": "SQA", "subject": str(i), **names, "locality": near}


def test_rows_and_their_probes() -> None:
    assert new_fact(fact()) == Example(
        "In which league does club 0 play?",
        "III Lyga",
        rephrasings=("What is the league of club 0?",),
        unrelated=(Example("In which league does FK Venta play?", "Latvian Higher League"),),
    )
    assert [(e.text, e.answer) for e in question(asked()).unrelated] == [
        ("who sings", "Z"), ("who plays", "Y"),
    ]  # fmt: skip
    found = hallucination(HALLUCINATION)
    assert (found.answer, found.rephrasings) == ("desert", ("How is Lima's climate classified?",))
    assert [(e.kind, e.answer) for e in found.unrelated] == [
        ("sisters", ""), ("yesno", "Yes"), ("yesno", "No"),
    ]  # fmt: skip
    assert {e.kind for e in found.unrelated} <= {name.lower() for name in PROBES}
    assert Example.from_json(found.to_json()) == found


def test_cells_that_are_empty_are_no_probes() -> None:
    assert hallucination(
        {**HALLUCINATION, "locality_question": "", "no_question": ""}
    ).unrelated == (Example("Is the climate of Lima a desert one?", "Yes", kind="yesno"),)


@pytest.mark.parametrize(("name", "make"), [("wikibigedit", fact), ("qaedit", asked)])
def test_half_of_the_rows_are_edited(name: str, make: Any, tmp_path: Path) -> None:
    rows = [make(i) for i in range(20)]
    (tmp_path / f"{name}.json").write_text(json.dumps([*rows, rows[0]]))
    for path in (tmp_path, tmp_path / f"{name}.json"):
        split = dataset(name, path)
        assert [len(p) for p in (split.train, split.test, split.edit)] == [8, 2, 10]
    texts = [e.text for part in (split.train, split.test, split.edit) for e in part]
    assert len(set(texts)) == 20, "the row that comes twice counts once"


def test_topics_are_read_together(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="files of some topics"):
        dataset("hallueditbench", tmp_path)
    for topic in ("places_city", "human_scientist"):
        with (tmp_path / f"{topic}.csv").open("w") as file:
            out = csv.DictWriter(file, HALLUCINATION)
            out.writeheader()
            out.writerows({**HALLUCINATION, "question": f"{topic} {i}?"} for i in range(5))
    split = dataset("hallueditbench", tmp_path)
    assert [len(p) for p in (split.train, split.test, split.edit)] == [4, 1, 5]
    assert len(dataset("hallueditbench", tmp_path / "places_city.csv").edit) == 2


def test_a_bad_row_is_named_or_left_out(tmp_path: Path) -> None:
    rows = [fact(i) for i in range(10)]
    del rows[3]["target_new"]
    file = tmp_path / "wikibigedit.json"
    file.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")
    with pytest.raises(BadInput, match=r"wikibigedit\.json:5: a row needs 'target_new'"):
        dataset("wikibigedit", file)
    with pytest.warns(match="bad lines skipped: 1"):
        split = dataset("wikibigedit", file, skip_bad=True)
    assert sum(len(p) for p in (split.train, split.test, split.edit)) == 9
