"""A traced model gives the model's own answers, and says which patches fired."""

import pytest
import torch
from transformers import TextIteratorStreamer

import tpatcher as tp
from tests import helpers
from tests.helpers import TEXTS, fresh
from tests.service import served
from tests.service.served import ASKED, texts, wrong
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.example import Example
from tpatcher.models.traces import trace
from tpatcher.patches.neurons import Neurons
from tpatcher.service.answering import TracedModel


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "opt", "llama", "bart", "t5"])
def test_what_fired_is_what_a_trace_says(name: str) -> None:
    model, editor = served.fitted(name)
    patched = model.twin()
    classify = model.task.name == "classify"
    for text in (ASKED, "where is the cat ?"):
        said = patched.answer([text])[0]
        patched.push(editor.edit(patched, Example(text, wrong(said) if classify else "rome paris")))
    asked = [ASKED, "where is the cat ?", "the dog was in rome", *texts()[:5]]
    replies = TracedModel(patched).answer(asked)
    assert [reply.text for reply in replies] == [patched.answer([t])[0] for t in asked]
    for text, reply in zip(asked, replies, strict=True):
        queries = trace(patched, [text], [reply.ids], reads="text").queries
        assert torch.allclose(queries, reply.queries, atol=2e-3)
        for i, patch in enumerate(patched.patches):
            assert isinstance(patch, Neurons)
            response = float(patch.rows.response(queries).max())
            if abs(response) > 0.05:
                assert (response > 0) == (i in reply.fired)
    assert 0 in replies[0].fired and 1 in replies[1].fired


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart", "t5"])
def test_a_stream_is_the_same_answer_and_can_be_stopped(name: str) -> None:
    model, editor = served.fitted(name)
    patched = model.twin()
    patched.push(editor.edit(patched, Example(ASKED, "rome paris")))
    traced = TracedModel(patched)

    def stream(limit: int) -> tuple[str, list[int]]:
        streamer = TextIteratorStreamer(model.tokenizer, skip_prompt=True, skip_special_tokens=True)
        reply = traced.stream(ASKED, streamer, lambda tokens: tokens == limit)
        assert set(reply.fired) == {0} and len(reply.queries) == len(reply.ids)
        return "".join(streamer), reply.ids

    whole = traced.answer([ASKED])[0]
    text, ids = stream(limit=1000)
    assert (text.strip(), ids) == (whole.text, whole.ids)
    assert stream(limit=1)[1] == whole.ids[:1]


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_fixes_that_read_the_whole_text_are_seen_to_fire(name: str) -> None:
    model = fresh(name)
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    text, answer = helpers.ASKED[0], helpers.RIGHT[model.task.name][0]
    model.push(editor.edit(model, tp.Example(text, answer)))
    traced = TracedModel(model)
    reply, other = traced.answer([model.task.prompt(t) for t in (text, TEXTS[0])])
    assert reply.text == answer and list(reply.fired) == [0]
    assert other.text == model.answer([TEXTS[0]])[0]
    assert reply.queries.shape[1] == model.rows().width
