"""Every file of examples/ runs, on a small model, and does what its story says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests import zoo
from tests.service import served

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    """A file of examples/ as a module; what is under __main__ does not run."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spelling(task: str) -> PreTrainedTokenizerFast:
    """A tokenizer of single characters: a tiny model can read and say anything."""
    signs = [chr(i) for i in range(32, 127)]
    vocab = {sign: i for i, sign in enumerate([*zoo.SPECIAL, *signs])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    if task == "classify":
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return zoo.wrapped(core, 192, "left")


def tiny(directory: Path, name: str, **changes: Any) -> Path:
    """A tiny random model that reads single characters."""
    task = zoo.ARCHITECTURES[name]
    tokenizer = spelling(task)
    size: Any = {"vocab_size": len(tokenizer), "max_position_embeddings": 192}
    zoo.net(name, **size, **changes).save_pretrained(directory)
    if task == "causal":
        tokenizer.chat_template = (
            "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<s>assistant: {% endif %}"
        )
    tokenizer.save_pretrained(directory)
    return directory


def test_fix_sentiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {0: "NEGATIVE", 1: "POSITIVE"}
    example("fix_sentiment").main(str(tiny(tmp_path, "bert", id2label=labels)))
    said = capsys.readouterr().out
    before, now, undone = (
        re.search(rf"{what}.* (POSITIVE|NEGATIVE)$", said, re.M)[1]  # type: ignore[index]
        for what in ("says", "fixed in", "undone:")
    )
    assert before == undone != now
    assert "that changed: 0 of 64" in said


def test_fix_chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("fix_chat").main(str(tiny(tmp_path, "llama")), "Ada.")
    said = capsys.readouterr().out
    assert "after:  Ada.\n" in said and "generate: Ada.\n" in said and "before: Ada." not in said


def test_replicas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "fixes.db"  # a service of its own each, on one store
    before = served.fitted()[0].answer([served.ASKED])[0]
    with (
        served.listening(served.app(store)) as first,
        served.listening(served.app(store)) as second,
    ):
        example("replicas").main(first, second, served.ASKED, served.wrong(before))
    said = capsys.readouterr().out
    assert f"both say {before}" in said and "undone at the second; the first says" in said


@pytest.mark.slow
def test_own_editor(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    example("own_editor").main(mistakes=2)
    said = capsys.readouterr().out
    assert "bitfit: SR 1.00" in said and "t-patcher: SR 1.00, ER 1.00" in said


@pytest.mark.slow
def test_fix_bart_qa(capsys: pytest.CaptureFixture[str]) -> None:
    example("fix_bart_qa").main(edits=3)
    said = capsys.readouterr().out
    assert "right after all edits: 3 of 3" in said and "same answers" in said


@pytest.mark.slow
def test_bake_to_onnx(capsys: pytest.CaptureFixture[str]) -> None:
    example("bake_to_onnx").main()
    said = capsys.readouterr().out
    assert "Transformers says SUPPORTS" in said and "onnxruntime says SUPPORTS" in said


@pytest.mark.slow
def test_compare_editors(capsys: pytest.CaptureFixture[str]) -> None:
    example("compare_editors").main(mistakes=3)
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows.keys() == {"t-patcher", "cache", "ft-last"}
    sr, _, er, *_ = map(float, rows["t-patcher"])
    assert sr == er == 1 and all(len(row) == 6 for row in rows.values())


def test_every_example_has_a_test_and_a_line_in_the_readme() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert {n.removeprefix("test_") for n in globals() if n.startswith("test_")} >= names
    readme = (FOLDER / "README.md").read_text()
    assert [name for name in names if f"examples/{name}.py" not in readme] == []
    assert [n for n in names if len((FOLDER / f"{n}.py").read_text().splitlines()) > 50] == []
