"""The whole experiment by one command, on a few rows in De Cao's form: stopped, it goes on."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import transformers as tf

from tests import zoo
from tests.bench import tiny
from tests.helpers import saved, tpatcher
from tpatcher.checkpoints import train as training
from tpatcher.sme.log import Log

KNOBS = {
    "mend": tiny.quick("mend") | {"validation": 4}, "sera": tiny.quick("sera") | {"validation": 4},
    "ft-last": {"steps": 3},
}  # fmt: skip
ROWS = [*KNOBS, "t-patcher-fast"]


def kilt(n: int, answers: list[str], seed: int) -> str:
    """Rows as KILT has them, with rephrasings as De Cao et al. released them."""
    draw, rows = Random(seed), []
    for _ in range(n):
        text = " ".join(draw.choices(zoo.WORDS, k=draw.randint(4, 8)))
        output = [{"answer": draw.choice(answers), "provenance": [{"title": "Rome"}]}]
        rows.append({"input": text, "output": output, "rephrases": [f"{text} ?", text]})
    return "\n".join(map(json.dumps, rows))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The command, on data and bases that are tiny, with an f0 of a few updates."""
    data = tmp_path / "data"
    data.mkdir()
    labels, names = ["SUPPORTS", "REFUTES"], ["paris", "lima", "a red bird"]
    (data / "fever-train-kilt.jsonl").write_text(kilt(80, labels, 0))
    (data / "fever-dev-kilt.jsonl").write_text(kilt(20, labels, 1))
    annotated = "new_annotated_final.jsonl"
    (data / f"structured_zeroshot-train-{annotated}").write_text(kilt(240, names, 2))
    (data / f"structured_zeroshot-dev-{annotated}").write_text(kilt(20, names, 3))
    tf.BertModel(tf.BertConfig(**zoo.ENC)).save_pretrained(tmp_path / "bert")
    zoo.tokenizer("classify").save_pretrained(tmp_path / "bert")
    saved(tmp_path / "bart", "bart")
    for name in ("FEVER", "ZSRE"):
        recipe = replace(getattr(training, name), updates=None, epochs=2, batch=32)
        monkeypatch.setattr(training, name, recipe)
    return [
        "reproduce", "table1", "--scale", "full", "--path", data, "--out", tmp_path / "out",
        "--base", tmp_path / "bert", "--base", tmp_path / "bart", "--device", "cpu",
        "--folders", 2, "--edits", 2, "--knobs", json.dumps(KNOBS),
        *(word for row in ROWS for word in ("--only", row)),
    ]  # fmt: skip


def stopped_after(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, times: int) -> None:
    """Ctrl-C when a method has been called so often."""
    real, called = getattr(kind, name), []

    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        called.append(1)
        if len(called) == times:
            raise KeyboardInterrupt

    monkeypatch.setattr(kind, name, method)


@pytest.mark.slow
def test_stopped_in_training_and_in_a_job_it_goes_on(
    words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patched:  # in the first epoch of the second f0
        stopped_after(patched, tf.Trainer, "_save_checkpoint", 3)
        assert tpatcher(*words).exit_code != 0
    assert [path.name for path in (out / "models").glob("[!.]*")] == ["fever"]
    first = (out / "models" / "fever" / "model.safetensors").stat().st_mtime_ns
    with monkeypatch.context() as patched:
        stopped_after(patched, Log, "write", 3)
        steps, real = list[int](), tf.Trainer.training_step

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            steps.append(1)
            return real(self, *args, **kwargs)

        patched.setattr(tf.Trainer, "training_step", counted)
        said = tpatcher(*words)
    assert len(steps) == 7, "the second epoch only, of 216 questions"
    assert said.exit_code == 1 and "jobs are left. To go on where this ended" in said.output
    known = {path: path.read_bytes() for path in out.glob("jobs/*/steps.jsonl")}
    assert sum(text.count(b"\n") - 1 for text in known.values()) == 3
    last = tpatcher(*words)
    assert last.exit_code == 0, (last.output, last.exception)
    assert (out / "models" / "fever" / "model.safetensors").stat().st_mtime_ns == first
    for path, begun in known.items():
        assert path.read_bytes().startswith(begun), "what was done is not done again"
    rows = (out / "tables" / "table1.csv").read_text()
    for data in ("fever", "zsre"):
        assert all(f"table1,{data},{row},SR," in rows for row in ROWS)
        assert f"table1,{data},t-patcher-fast,SR,1.0" in rows
    assert len(list(out.glob("jobs/*/scores.json"))) == 2 * 2 * len(ROWS)
