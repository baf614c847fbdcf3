"""CounterFact in its original nested form and in the compact one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tpatcher.data.counterfact import counterfact, rewrite
from tpatcher.errors import BadInput
from tpatcher.example import Example

NEAR = (Example("BBC Radio, by", "BBC"),)
TRUE = Example("BBC One, by", "BBC", rephrasings=("BBC One is owned by",), unrelated=NEAR)
FALSE = Example("BBC One, by", "Sega", rephrasings=("BBC One is owned by",), unrelated=NEAR)


def compact(prompt: str = "BBC One, by") -> dict[str, Any]:
    """A row of the compact files."""
    return {
        "case_id": 10,
        "prompt": prompt,
        "target_new": "Sega",
        "subject": "BBC One",
        "ground_truth": "BBC",
        "rephrase_prompt": "BBC One is owned by",
        "locality_prompt": "BBC Radio, by",
        "locality_ground_truth": "BBC",
    }


def nested(subject: str = "BBC One") -> dict[str, Any]:
    """A row of the original file."""
    asked = {
        "prompt": "{}, by",
        "relation_id": "P178",
        "subject": subject,
        "target_new": {"str": "Sega", "id": "Q122741"},
        "target_true": {"str": "BBC", "id": "Q9531"},
    }
    return {
        "case_id": 10,
        "requested_rewrite": asked,
        "paraphrase_prompts": ["BBC One is owned by"],
        "neighborhood_prompts": ["BBC Radio, by"],
        "generation_prompts": [],
    }


@pytest.mark.parametrize("row", [compact(), nested()])
def test_both_forms_give_the_true_and_the_false_fact(row: dict[str, Any]) -> None:
    assert rewrite(row) == (TRUE, FALSE)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "BBC One, by"}, "needs 'locality_prompt'; this one has prompt"),
        ({"requested_rewrite": {"prompt": "{}"}}, "'target_true' must be an object; found None"),
        ({"requested_rewrite": None}, "'requested_rewrite' must be an object; found None"),
        ({**nested(), "neighborhood_prompts": 3}, "'neighborhood_prompts' must be a list"),
    ],
)
def test_a_bad_row_says_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        rewrite(row)


def test_the_compact_files_edit_the_second(tmp_path: Path) -> None:
    first = [compact(f"{i}, by") for i in range(20)]
    (tmp_path / "counterfact-train.json").write_text(json.dumps(first))
    (tmp_path / "counterfact-val.json").write_text(json.dumps([compact()]))
    split = counterfact(tmp_path)
    assert split.edit == [FALSE]
    assert (len(split.train), len(split.test)) == (18, 2)
    assert {e.text for e in (*split.train, *split.test)} == {row["prompt"] for row in first}
    assert {e.answer for e in (*split.train, *split.test)} == {"BBC"}


def test_the_original_file_is_split(tmp_path: Path) -> None:
    rows = [nested(str(i)) for i in range(30)]
    (tmp_path / "counterfact.json").write_text(json.dumps(rows, indent=1))
    split = counterfact(tmp_path)
    assert [len(p) for p in (split.train, split.test, split.edit)] == [24, 3, 3]
    assert {e.answer for e in split.edit} == {"Sega"}
    assert len({e.text for p in (split.train, split.test, split.edit) for e in p}) == 30
