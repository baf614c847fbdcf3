"""What several test modules use: the texts they ask, models and their fixes, the command line."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers as tf
import typer
from torch import Tensor
from typer.testing import CliRunner, Result

import tpatcher as tp
from tests import zoo
from tpatcher import cli
from tpatcher.patches.neurons import Neurons

TEXTS = [" ".join(Random(i).choices(zoo.WORDS, k=Random(i).randint(2, 9))) for i in range(60)]
ASKED = [f"what is the {word} of rome ?" for word in ("river", "city", "bird")]
RIGHT = {"classify": ["maybe", "no", "yes"], "seq2seq": ["paris", "lima", "a red bird"]}
RIGHT["causal"] = RIGHT["seq2seq"]
QUESTIONS = [
    "who wrote hamlet ?", "what is the capital of france ?", "the dog is red", "a cat in rome",
    "where is the river in peru ?", "what is the capital of spain ?", "is tokyo in japan ?",
    "which bird was green ?", "the fish is blue", "is rome a city in italy ?",
]  # fmt: skip
ANSWERS = {"bert": ["no", "maybe", "yes"], "bart": ["paris", "lima", "red"]}
ANSWERS["gpt2"] = ANSWERS["bart"]


def fresh(name: str) -> tp.Model:
    """A model of the zoo without patches."""
    task = zoo.ARCHITECTURES[name]
    return tp.Model(zoo.net(name), zoo.tokenizer(task), task, name=name)


@cache
def edited(name: str) -> tuple[tuple[tp.Example, ...], tuple[Neurons, ...]]:
    """Up to three mistakes of a model, and the patches that fix one after the other."""
    model = fresh(name)
    editor = tp.TPatcher().fit(model, TEXTS)
    done: list[tuple[tp.Example, Neurons]] = []
    for text, answer in zip(ASKED, RIGHT[model.task.name], strict=True):
        example = tp.Example(text, answer)
        if not model.correct([example])[0]:
            before = logits(model)
            patch = editor.edit(model, example)
            assert isinstance(patch, Neurons)
            assert torch.equal(logits(model), before), "editing must not touch the model"
            assert model.patches == tuple(p for _, p in done)
            model.push(patch)
            done.append((example, patch))
    assert done, f"{name} is right about everything that is asked"
    examples, patches = zip(*done, strict=True)
    return examples, patches


def wearing(name: str, *patches: Neurons) -> tp.Model:
    """A model of the zoo with these patches."""
    model = fresh(name)
    for patch in patches:
        model.push(patch)
    return model


@torch.no_grad()
def logits(model: tp.Model, texts: Sequence[str] = (*ASKED, TEXTS[0])) -> Tensor:
    """The model's logits at every answer position of a few texts, all with the same answer."""
    n = len(texts)
    targets = model.task.dummy_targets(n) if model.task.name == "classify" else [[5, 9, 2]] * n
    forced = model.task.force(texts, targets)
    return model.task.logits(model.net(**forced.inputs), forced)


@torch.no_grad()
def holds_token_by_token(net: tf.PreTrainedModel, ids: Tensor) -> None:
    """A net's logits are the same at once and one token after the other."""
    at_once, past, steps = net(ids).logits, None, []
    for i in range(ids.shape[1]):
        out = net(ids[:, i : i + 1], past_key_values=past, use_cache=True)
        past = out.past_key_values
        steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), at_once, rtol=1e-4, atol=1e-4)


def wrong_label(model: tp.Model, text: str) -> str:
    """A label that a classifier of the zoo does not give to this text."""
    return next(label for label in ("no", "maybe") if label != model.answer([text])[0])


def wrong(model: tp.Model, text: str) -> tp.Example:
    """A mistake of a classifier of the zoo: this text with a label that it does not get."""
    return tp.Example(text, wrong_label(model, text))


def stream_of(model: tp.Model) -> list[tp.Example]:
    """Twelve examples with a rephrasing each, the same for every model of a task."""
    draw = Random(0)
    classify = model.task.name == "classify"
    answers = ["yes", "no", "maybe"] if classify else ["paris", "lima", "a dog"]
    return [
        tp.Example(f"what is the {a} {b} ?", draw.choice(answers), rephrasings=(f"the {a} {b} ?",))
        for a in zoo.WORDS[18:24]
        for b in zoo.WORDS[24:26]
    ]


def saved(
    directory: Path, name: str, change: Callable[[tf.PreTrainedModel], None] | None = None
) -> Path:
    """Save a net of the zoo, changed if asked, and its tokenizer, as `tp.load` wants them."""
    net = zoo.net(name)
    if change:
        change(net)
    net.save_pretrained(directory)
    zoo.tokenizer(zoo.ARCHITECTURES[name]).save_pretrained(directory)
    return directory


def bringing_code(directory: Path) -> Path:
    """A model that brings code of its own; the file returned is there once the code has run."""
    directory.mkdir(exist_ok=True)
    ran = directory / "ran"
    (directory / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Config: ...\n")
    config = {"model_type": "unheard-of", "auto_map": {"AutoConfig": "evil.Config"}}
    (directory / "config.json").write_text(json.dumps(config))
    return ran


def says_yes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have whoever is asked at the terminal say yes; the list grows by each question."""
    asked: list[str] = []

    def answer(question: str = "") -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    return asked


def tpatcher(*words: object) -> Result:
    """What `tpatcher WORDS…` does and prints, on a wide terminal."""
    return CliRunner().invoke(cli.app, [str(w) for w in words])


def examples(name: str) -> list[tp.Example]:
    """The questions, each with an answer that this model can give."""
    answers = ANSWERS[name]
    return [tp.Example(text, answers[i % len(answers)]) for i, text in enumerate(QUESTIONS)]


@cache
def commands() -> dict[tuple[str, ...], set[str]]:
    """The options of every command and group: ("bench", "speed") → {"--json", "--help", …}."""
    found: dict[tuple[str, ...], set[str]] = {}

    def add(command: Any, words: tuple[str, ...]) -> None:
        options = [p for p in command.params if p.param_type_name == "option"]
        names = {name for p in options for name in (*p.opts, *p.secondary_opts)}
        found[words] = names | {"--help"}
        for name, child in getattr(command, "commands", {}).items():
            add(child, (*words, name))

    add(typer.main.get_command(cli.app), ())
    return found


def serve_options() -> list[Any]:
    """The options of `tpatcher serve`, as Typer describes them."""
    serve = typer.main.get_command(cli.app).commands["serve"]  # type: ignore[attr-defined]
    return [p for p in serve.params if p.name != "help"]
