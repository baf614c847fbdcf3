"""zsRE in KILT's form, in MEND's and in the simple one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tpatcher.data.split import by_ratio
from tpatcher.data.zsre import RATIOS, question, questions, zsre
from tpatcher.errors import BadInput
from tpatcher.example import Example

WITH_TESTS = ("zsre_train", "zsre_eval", "levy_zsre_qa", "entityquestions/dev")


def kilt(text: str, *answers: str) -> dict[str, Any]:
    """A row of the KILT release."""
    output = [{"answer": answer, "provenance": []} for answer in answers]
    return {"input": text, "output": output, "rephrases": [f"{text} really?", text]}


def simple(text: str, *answers: str, **more: Any) -> dict[str, Any]:
    """A row in the simple form."""
    return {"question": text, "answers": list(answers or ("yes",)), **more}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """JSON Lines, or an array."""
    path.parent.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(json.dumps(rows) if path.suffix == ".json" else lines)
    return path


def with_tests(folder: Path, **rows: list[dict[str, Any]]) -> None:
    """Files like MEND's with others to test on, each with these rows or one of its own."""
    for name in WITH_TESTS:
        stem = Path(name).name
        write(folder / f"{name}.jsonl", *rows.get(stem, [simple(f"A question of {stem}?")]))


def test_kilt_questions_have_one_answer() -> None:
    assert questions(kilt("Q?", "A")) == [Example("Q?", "A", rephrasings=("Q? really?",))]
    assert questions(kilt("Q?", "A", "B")) == questions(kilt("Q?", "A", " a")) == []
    alias = kilt("Q?", "A")
    alias["output"].append({"answer": "B"})
    assert [e.answer for e in questions(alias)] == ["A"], "an answer without evidence is none"


def test_mends_form() -> None:
    row = {
        "subject": "S",
        "src": "Who is S?",
        "pred": "X",
        "rephrase": "S is who?",
        "alt": "Y",
        "answers": ["A", "B"],
        "loc": "nq question: who sings",
        "loc_ans": "Z",
        "cond": "X >> Y || Who is S?",
    }
    example = Example(
        "Who is S?",
        "A",
        also=("B",),
        rephrasings=("S is who?",),
        unrelated=(Example("who sings", "Z"),),
    )
    assert question(row) == example
    row["input"] = row.pop("src")
    assert question(row) == example


def test_other_relations_of_the_subject_are_sisters() -> None:
    asked = [
        {"prompt": "The country of S is", "ground_truth": [["France", "FR"]]},
        {"prompt": "The sister of S is", "ground_truth": []},
        {"prompt": "The voice of S is", "ground_truth": ["a "]},  # asks what the question asks
    ]
    row = simple("Who is S?", "A", locality={"Relation_Specificity": asked, "Other": 3})
    found = question(row)
    assert found is not None
    assert found.unrelated == (
        Example("The country of S is", "France", also=("FR",), kind="sisters"),
        Example("The sister of S is", "", kind="sisters"),
    )


def test_the_simple_form_joins_both_lists_of_rephrasings() -> None:
    row = simple("Q?", "A", rephrases=["R?"], llm_rephrases=["L?", "R?"], loc=None, loc_ans=None)
    assert question(row) == Example("Q?", "A", rephrasings=("R?", "L?"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answers": ["A"]}, "needs 'question' or 'src' or 'input'; this one has answers"),
        ({"question": "Q?"}, "needs an answer; this one has question"),
        (simple("Q?", loc=1, loc_ans="A"), "'loc' must be a text; found 1"),
        (simple("Q?", locality={"Relation_Specificity": [{}]}), "needs 'prompt'"),
        (simple("Q?", llm_rephrases=[None]), "'llm_rephrases' must be a list of texts"),
    ],
)
def test_a_bad_row_says_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        question(row)


@pytest.mark.parametrize(
    "names",
    [
        [f"structured_zeroshot-{part}-new_annotated_final.jsonl" for part in ("train", "dev")],
        ["zsre_mend_train.json", "zsre_mend_eval.json"],
    ],
)
def test_a_release_is_split_as_in_the_paper(tmp_path: Path, names: list[str]) -> None:
    one, two = kilt("Two?", "A", "B"), kilt("Held?", "A")
    write(tmp_path / names[0], one, *(kilt(f"Q{i}?", "A") for i in range(80)))
    write(tmp_path / names[1], one, two, two)
    split = zsre(tmp_path)
    assert sum(len(p) for p in (split.train, split.val, split.edit)) == 80
    assert len(split.edit) == 2
    assert [e.text for e in split.test] == ["Held?", "Held?"]  # the validation file stays intact


def test_kilt_is_split_first_and_filtered_then(tmp_path: Path) -> None:
    """So the parts are not 0.9 : 0.075 : 0.025 of what is left, and nor are the paper's sizes."""
    _, val, edit = by_ratio(range(244_173), RATIOS)
    printed = {len(edit): 5_317, len(val): 15_982, 27_644: 24_051}
    shares = [kept / drawn for drawn, kept in printed.items()]
    assert max(shares) - min(shares) < 0.005, "one share of each part, but for chance, is kept"
    several = {i for i in range(400) if i % 8 == 0}
    rows = [kilt(f"Q{i}?", "A", *(["B"] if i in several else [])) for i in range(400)]
    write(tmp_path / "structured_zeroshot-train-new.jsonl", *rows)
    write(tmp_path / "structured_zeroshot-dev-new.jsonl", *rows)
    split = zsre(tmp_path)
    for part, drawn in zip(
        (split.train, split.val, split.edit), by_ratio(range(400), RATIOS), strict=True
    ):
        assert [e.text for e in part] == [f"Q{i}?" for i in drawn if i not in several]
    assert len(split.test) == 350


def test_questions_in_other_files_are_tested_if_they_were_never_seen(tmp_path: Path) -> None:
    seen = ["trained?", "A question of zsre_train?", "A question of zsre_eval?", "listed?"]
    again = simple("in other words?", rephrases=["listed?"])
    new = [simple("new?"), simple("new?")]
    with_tests(tmp_path, levy_zsre_qa=[*map(simple, seen), again], dev=new)
    (tmp_path / "list.txt").write_text("trained?\nlisted?\n")
    for without in (tmp_path / "list.txt", str(tmp_path / "list.txt"), {"trained?", "listed?"}):
        split = zsre(tmp_path, exclude=without)
        assert [e.text for e in split.test] == ["new?"]
    assert [e.text for e in split.edit] == ["A question of zsre_eval?"]
    assert [e.text for e in split.train] == ["A question of zsre_train?"]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    with_tests(tmp_path, zsre_train=[simple("Q?"), {"question": ""}])
    with pytest.raises(BadInput, match=r"zsre_train\.jsonl:2: 'question' must be a text; found ''"):
        zsre(tmp_path)
