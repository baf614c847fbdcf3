"""The same question in other contexts."""

from typing import Any

import pytest
import torch

import tpatcher as tp
from tests.chat import chat
from tests.helpers import fresh
from tpatcher.data.background import questions
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.editors.tpatcher.contexts import INSTRUCTION, contexts, others_in_contexts
from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.models.traces import queries
from tpatcher.nets.reading import Reads

TURN = {"role": "user", "content": "Who?"}


def test_a_chat_model_has_three_and_a_plain_one_the_instruction() -> None:
    instructed, system, later = contexts(chat(), "Who?")
    assert instructed == INSTRUCTION.format("Who?")
    assert isinstance(system, tp.Conversation)
    assert isinstance(later, tp.Conversation)
    assert [m["role"] for m in later.messages] == ["user", "assistant", "user"]
    assert contexts(chat(template=None), "Who?") == [instructed]
    assert contexts(fresh("gpt2"), "who ?") == [], "its tokenizer knows a few words only"
    assert contexts(fresh("bert"), "who ?") == []


def test_a_question_of_a_conversation_is_also_asked_alone() -> None:
    talk = tp.Conversation([{"role": "system", "content": "Be brief."}, TURN])
    assert contexts(chat(), talk) == ["Who?"]
    assert contexts(chat(), tp.Conversation([TURN])) == []


def test_other_questions_are_asked_in_every_context() -> None:
    model = chat()
    task: Any = model.task
    found = [one.ids for one in others_in_contexts(model)]
    asked = questions()[1]
    assert all(task.ids(text) in found for text in contexts(model, asked))
    assert task.ids(asked) not in found
    assert len(found) % 3 == 0
    assert not list(others_in_contexts(fresh("gpt2")))


def test_a_fix_holds_in_its_contexts() -> None:
    model = chat()
    example = tp.Example("Who?", "Bo")
    texts = ["Ja?", "Nein?", "Where is it?", "Please answer the question:\n\nQ: Why?\nA:"]
    memory = tp.Memory.collect(model, texts, background=False)
    held = {}
    for wide in (True, False):
        patch = tp.TPatcher(MaxMargin(contexts=wide)).fit(model, memory).edit(model, example)
        twin = model.twin()
        twin.push(patch)
        asked = [tp.Example(text, "Bo") for text in contexts(model, "Who?")]
        held[wide] = sum(twin.correct(asked))
    assert held[True] >= held[False]
    assert held[True] >= 2


@pytest.mark.parametrize("reads", ["position", "text"])
def test_contexts_are_run_in_one_batch_with_the_mistake(reads: Reads) -> None:
    model, example = chat(), tp.Example("Who?", "Bo")
    memory = tp.Memory.collect(model, ["Ja?", "Nein?"], background=False)
    beside = MaxMargin().beside(model, example, memory)
    assert beside == contexts(model, "Who?") and not MaxMargin(contexts=False).beside(
        model, example, memory
    )
    for _ in range(3):  # by then the beginning of each is known
        found = Mistake.find(model, example, -1, reads, beside=beside)
    alone = Mistake.find(model, example, -1, reads)
    torch.testing.assert_close(found.logits, alone.logits, atol=1e-4, rtol=1e-4)
    each = queries(model, beside, [found.target] * len(beside), -1, reads)
    together = torch.cat([found.beside[text].queries for text in beside])
    torch.testing.assert_close(together, each, atol=1e-4, rtol=1e-4)
