"""What texts begin with is run once, and nothing else comes out."""

import pytest
import torch
from transformers import MistralConfig

import tpatcher as tp
from tests import chat
from tests.helpers import fresh
from tpatcher.example import Conversation
from tpatcher.models.traces import trace
from tpatcher.nets.reading import Reads

ASKED = ["Tell me: who runs it?", "Tell me: was it he, and why?", "Tell me: yes?"]
EARLIER = ["Tell me: where?", "Tell me: no.", "Tell me: yes", "Tell me: how?"]


def targets(model: tp.Model, texts: list[str]) -> list[list[int]]:
    return [model.task.target(text, "Ada") for text in texts]


@pytest.mark.parametrize("reads", ["position", "text"])
@pytest.mark.parametrize("texts", [ASKED, ASKED[:1]], ids=["batch", "one"])
def test_a_beginning_that_is_known_changes_nothing(reads: Reads, texts: list[str]) -> None:
    model, other = chat.chat(), chat.chat()
    for text in EARLIER:  # now what they begin with is known
        trace(other, [text], targets(other, [text]), reads=reads)
    assert other.probe(-1, reads).beginnings.known
    whole = trace(model, texts, targets(model, texts), reads=reads)
    short = trace(other, texts, targets(other, texts), reads=reads)
    for name in ("queries", "states", "gap"):
        torch.testing.assert_close(getattr(short, name), getattr(whole, name), atol=1e-4, rtol=1e-4)
    assert torch.equal(short.best, whole.best)


@pytest.mark.parametrize("reads", ["position", "text"])
def test_texts_of_a_batch_may_begin_each_in_its_own_way(reads: Reads) -> None:
    turns = [
        {"role": "user", "content": "Tell me: was it he?"},
        {"role": "assistant", "content": "yes"},
    ]
    asked = [*ASKED[:2], Conversation([*turns, {"role": "user", "content": "and why?"}])]
    model, other, lengths = chat.chat(), chat.chat(), list[int]()
    probe = other.probe(-1, reads)
    probe.net.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    for _ in range(3):  # a longer beginning than is known is learnt when it is met again
        short = trace(other, asked, targets(other, asked), reads=reads)
    whole = torch.cat([trace(model, [t], targets(model, [t]), reads=reads).queries for t in asked])
    torch.testing.assert_close(short.queries, whole, atol=1e-4, rtol=1e-4)
    assert len({len(ids) for ids in probe.beginnings.known}) > 1
    assert lengths[-1] < lengths[0] // 2


def test_a_beginning_is_not_run_again() -> None:
    model, seen = chat.chat(), list[int]()
    net = model.probe(-1, "position").net
    net.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    for text in EARLIER:
        trace(model, [text], targets(model, [text]))
    whole = len(model.tokenizer(model.task.prompt(EARLIER[-1])).input_ids)
    assert seen[0] >= whole
    assert seen[-1] < whole - 8


def test_texts_with_nothing_in_common_are_run_whole() -> None:
    model = fresh("gpt2")
    trace(model, ["the dog is red", "blue is a dog"], [[1], [1]])
    assert not model.probe(-1, "position").beginnings.known


def test_a_window_that_slides_is_run_whole() -> None:
    made = chat.net(MistralConfig)
    made.config.sliding_window = 16
    model = tp.Model(made, chat.tokenizer(), "causal", name="sliding")
    for text in ASKED:
        trace(model, [text], targets(model, [text]))
    assert not model.probe(-1, "position").beginnings.known
