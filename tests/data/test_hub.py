"""Datasets from the hub, with `datasets.load_dataset` read from files of the same shape."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from tpatcher.data import dataset
from tpatcher.data.hub import SOURCES, without_gaps
from tpatcher.errors import BadInput

QUESTIONS = ["In which country is Rome?", "What is the country of Rome?"]
KILT = {
    "fever": ("Rome is in Italy.", "SUPPORTS"),
    "structured_zeroshot": ("Rome [SEP] country", "Italy"),
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked of the hub; it answers with forty rows, all fields filled as in a table."""
    asked: list[tuple[Any, ...]] = []
    real = datasets.load_dataset

    def load(source: str, configuration: str | None, split: str) -> Any:
        asked.append((source, configuration, split))
        if configuration is None:
            told = {"prompt": "{} is in", "subject": "Rome", "target_new": {"str": "Peru"}}
            rewrite = {**told, "target_true": {"str": "Italy"}}
            row: Any = {"requested_rewrite": rewrite, "paraphrase_prompts": ["Where is Rome? In"]}
        else:
            text, answer = KILT[configuration]
            given = {"answer": answer, "provenance": [{"title": "Rome"}]}
            meta = {"template_questions": QUESTIONS if "SEP" in text else [], "mention": ""}
            outputs = [given, {"answer": "", "provenance": []}]
            row = {"meta": meta, "input": text, "output": outputs}
        file = tmp_path / f"{len(asked)}.jsonl"
        file.write_text("\n".join(json.dumps({"id": str(i), **row}) for i in range(40)))
        cache = str(tmp_path / "cache")
        return real("json", data_files=str(file), split="train", cache_dir=cache)

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return asked


@pytest.mark.parametrize("name", SOURCES)
def test_a_dataset_is_fetched_by_its_name_once(name: str, hub: list[tuple[Any, ...]]) -> None:
    found = dataset(name)
    source, configuration, splits = SOURCES[name]
    assert hub == [(source, configuration, split) for split in splits]
    assert len(found.train) + len(found.edit) + len(found.test) + len(found.val) == 40 * len(splits)
    assert {e.answer for e in found.train} <= {"SUPPORTS", "Italy"}
    if name == "zsre":
        assert {(e.text, *e.rephrasings) for e in found.train} == {tuple(QUESTIONS)}
    assert dataset(name) == found
    assert len(hub) == len(splits), "the second time it is read from the cache"


def test_a_hub_that_cannot_be_reached_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", away)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=r"needs the folder or file .*no network"):
        dataset("zsre")
    assert not (tmp_path / "tpatcher" / "data" / "zsre").exists()


def test_gaps_of_a_table_are_left_out() -> None:
    row = {"output": [{"answer": "", "meta": {"score": None}}, {"answer": "x"}], "n": 0}
    assert without_gaps(row) == {"output": [{}, {"answer": "x"}], "n": 0}
