"""The same question in other contexts."""

from typing import Any

import tpatcher as tp
from tests.chat import chat
from tests.helpers import fresh
from tpatcher.data.background import questions
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.editors.tpatcher.contexts import INSTRUCTION, contexts, others_in_contexts

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
