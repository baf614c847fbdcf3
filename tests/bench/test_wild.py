"""Streams in the wild: what is asked, that a killed run goes on, and the report."""

import gzip
import json
from pathlib import Path

import pytest
import torch

import tpatcher as tp
from tests.chat import chat, net, tokenizer
from tests.helpers import fresh, tpatcher
from tpatcher.bench.wild import drift as drifts
from tpatcher.bench.wild import stream as streams
from tpatcher.bench.wild.asking import ask, normalised
from tpatcher.bench.wild.drift import documentation, drift, general_prompts
from tpatcher.bench.wild.report import published
from tpatcher.data import background as written
from tpatcher.data.wild import SETS, wild
from tpatcher.editors.finetune import FTAll
from tpatcher.editors.tpatcher import background as backgrounds
from tpatcher.errors import BadInput
from tpatcher.example import Document

ROWS = [
    {"src": f"Who {verb} it?", "alt": answer, "rephrase": f"It was {verb} by whom?",
     "loc": f"nq question: where is {verb}", "loc_ans": "x"}
    for verb, answer in (("made", "Bo"), ("saw", "Al"), ("ate", "Cy"), ("won", "Di"))
]  # fmt: skip


@pytest.fixture
def zsre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of four rows, and everything else small."""
    few = (Document("A heron stands among the sedge."), Document("def f(x):\n    return x"))
    monkeypatch.setattr(written, "documents", lambda: few)
    monkeypatch.setattr(written, "questions", lambda: ("who sings it", "Where is it?"))
    monkeypatch.setattr(backgrounds, "LENGTH", 6)
    monkeypatch.setattr(backgrounds, "SAMPLES", 4)
    monkeypatch.setattr(drifts, "PASSAGES", 2)
    monkeypatch.setattr(drifts, "TOKENS", 2)
    monkeypatch.setattr(streams, "general_prompts", lambda: ["Who?", "Where?"])
    backgrounds._sample.cache_clear()
    path = tmp_path / "zsre.json.gz"
    path.write_bytes(gzip.compress(json.dumps(ROWS).encode()))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net().save_pretrained(tmp_path / "chat")
    tokenizer().save_pretrained(tmp_path / "chat")
    return tmp_path / "chat"


def test_a_stream_goes_on_and_is_reported(zsre: Path, model: Path, tmp_path: Path) -> None:
    words = ["wild", model, "--data", "zsre", "--path", zsre, "--out", tmp_path / "runs" / "ours"]
    words += ["--every", 1, "--max-new-tokens", 4]
    first = tpatcher(*words, "--edits", 2)
    assert first.exit_code == 0, first.output
    rows = json.loads((tmp_path / "runs" / "ours" / "measures.json").read_bytes())
    assert [(row["edits"], row["whole"]) for row in rows] == [(1, False), (2, True)]
    assert rows[-1]["Rel"] == 1.0
    assert set(rows[-1]) >= {"Instruction", "Context", "Gen", "Loc", "ratio", "kl", "prompts"}
    steps = (tmp_path / "runs" / "ours" / "steps.jsonl").read_bytes().splitlines()
    assert tpatcher(*words, "--edits", 3).exit_code == 0
    longer = (tmp_path / "runs" / "ours" / "steps.jsonl").read_bytes().splitlines()
    assert longer[: len(steps)] == steps
    assert len(longer) == len(steps) + 1
    page = (tmp_path / "runs" / "ours" / "report.html").read_text()
    assert "LocFT-BF" in page
    assert "<svg" in page


def test_any_editor_can_be_a_row(zsre: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "cache"
    words = ["wild", model, "--data", "zsre", "--path", zsre, "--out", out, "--editor", "cache"]
    done = tpatcher(*words, "--edits", 2, "--max-new-tokens", 8)
    assert done.exit_code == 0, done.output
    (row,) = json.loads((out / "measures.json").read_bytes())
    assert row["Rel"] == 1.0
    assert row["ratio"] == 1.0, "a cache changes no distribution"


def test_no_edit_no_drift() -> None:
    model = chat()
    found = drift(model, ["A heron stands."], ["Who?"])
    ids = torch.tensor([model.task.tokenize("A heron stands.").input_ids])
    with torch.no_grad():  # of the text as it is: in no template, and without an answer
        mean = torch.nn.functional.cross_entropy(model.net(ids).logits[0, :-1], ids[0, 1:])
    assert found.perplexity == pytest.approx(float(mean.exp()), rel=1e-3)
    assert (found.ratio, found.kl, found.winners, found.prompts) == (1.0, 0.0, 1.0, 1.0)
    assert found.perplexity > 1


def test_drift_is_seen() -> None:
    model = chat()
    model.net.generation_config.max_new_tokens = 8
    texts = ["A heron stands among the sedge.", "It was Tuesday."]
    editor = FTAll(steps=5).fit(model, texts)
    model.push(editor.edit(model, tp.Example("Who?", "No")))
    found = drift(model, texts, ["Where?"])
    assert found.kl > 0
    assert found.ratio != 1.0


def test_a_classifier_is_no_language_model(tmp_path: Path) -> None:
    from tpatcher.bench.wild.stream import Plan, run

    with pytest.raises(BadInput, match="no language model"):
        run(fresh("bert"), tp.TPatcher(), [], Plan(), tmp_path)


def test_answers_are_compared_without_articles_and_punctuation() -> None:
    assert normalised(" The Hague. ") == normalised("hague")
    assert normalised("St. Paul") != normalised("Paul")


def test_what_is_asked_when_nothing_was_edited() -> None:
    model = chat()
    said = model.answer(["Who?"])[0]
    found = ask(model, [tp.Example("Who?", said, unrelated=(tp.Example("Where?", "x"),))])
    assert (found.Rel, found.Loc) == (1.0, 1.0)
    assert found.Gen is None


def test_what_comes_with_the_package() -> None:
    assert len(general_prompts()) == 50
    assert len(documentation()) == drifts.PASSAGES
    protocols = published()["protocols"]
    assert all(row["protocol"] in protocols for row in published()["rows"])
    assert {row["data"] for row in published()["rows"]} <= set(SETS)


def test_the_sets_that_papers_use(tmp_path: Path) -> None:
    rows = {
        "counterfact": {"prompt": "A is", "target_new": "B", "rephrase_prompt": "So A is",
                        "locality_prompt": "C is", "locality_ground_truth": "D"},
        "qaedit": {"prompt": "A?", "target": "B", "rephrase": "And A?",
                   "locality": [{"loc": "C?", "loc_ans": "D"}]},
    }  # fmt: skip
    for name, row in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps([row, row]))
        (example,) = wild(name, tmp_path)
        assert example.answer == "B"
        assert len(example.rephrasings) == len(example.unrelated) == 1
    (tmp_path / "art.csv").write_text(
        "question,object,paraphrased_question,locality_question\nA?,B,And A?,C?\n"
    )
    (example,) = wild("hallueditbench", tmp_path / "art.csv")
    assert example.unrelated[0].text == "C?"
    with pytest.raises(BadInput, match="unknown set"):
        wild("squad", tmp_path)
