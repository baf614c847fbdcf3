"""FEVER in KILT's form and in the simple one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tpatcher.data.fever import LABELS, claim, fever
from tpatcher.errors import BadInput
from tpatcher.example import Example


def kilt(text: str, label: str = "SUPPORTS", **more: Any) -> dict[str, Any]:
    """A row of the KILT release."""
    output = [{"answer": label, "provenance": [{"title": "T"}]}, {"provenance": []}]
    return {"id": "1", "input": text, "output": output, "rephrases": [], **more}


def simple(text: str, *rephrases: str) -> dict[str, Any]:
    """A row in the simple form."""
    return {"ids": [1], "claim": text, "label": "REFUTES", "rephrases": list(rephrases)}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_both_forms_give_the_same_example() -> None:
    example = Example("A.", "REFUTES", rephrasings=("It is A.", "A!"))
    rephrases = ["It is A.", "A.", "A!", "A!"]
    assert claim(kilt("A.", "REFUTES", rephrases=rephrases)) == example
    assert claim(simple("A.", *rephrases)) == example


def test_only_filtered_rephrases_will_do() -> None:
    row = kilt("A.", filtered_rephrases=["B."])
    del row["rephrases"]
    assert claim(row).rephrasings == ("B.",)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"claim": "A."}, "needs 'label'; this one has claim"),
        ({"label": "REFUTES"}, "needs 'claim' or 'input'; this one has label"),
        (kilt("A.", "NOT ENOUGH INFO"), "must be SUPPORTS or REFUTES; found NOT ENOUGH INFO"),
        ({"input": "A.", "output": [{"answer": a} for a in LABELS]}, "found SUPPORTS, REFUTES"),
        ({"input": "A.", "output": []}, "needs an answer"),
        (kilt("A.", rephrases=[1]), "'rephrases' must be a list of texts"),
    ],
)
def test_a_bad_row_says_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        claim(row)


def test_the_kilt_release_is_split_as_in_the_paper(tmp_path: Path) -> None:
    write(tmp_path / "fever-train-kilt.jsonl", *(kilt(f"Claim {i}.") for i in range(59)))
    write(tmp_path / "fever-dev-kilt.jsonl", *(kilt(f"Held {i}.") for i in range(7)))
    split = fever(tmp_path, seed=3)
    assert [len(p) for p in (split.train, split.val, split.edit, split.test)] == [49, 5, 5, 7]
    assert len({e.text for p in (split.train, split.val, split.edit) for e in p}) == 59
    assert split == fever(tmp_path, seed=3)
    assert split != fever(tmp_path, seed=4)


def test_if_the_development_claims_have_the_rephrasings_those_are_the_edits(tmp_path: Path) -> None:
    held = simple("A.", "It is A."), simple("C.", "It is C."), simple("B.")
    write(tmp_path / "fever_train.jsonl", simple("T.", "It is T."))
    write(tmp_path / "fever_paper_dev.jsonl", *held)
    split = fever(tmp_path)
    parts = [[e.text for e in part] for part in (split.train, split.edit, split.test, split.val)]
    assert parts == [["T."], ["A.", "C."], ["B."], []]


def test_a_folder_without_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"needs fever\*train\*, fever\*dev\* \(plain or \.gz\)"):
        fever(tmp_path)
