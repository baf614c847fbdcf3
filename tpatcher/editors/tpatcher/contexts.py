"""The same question in other contexts, for which a fix of it should hold too.

WILD (Yang et al. 2025) asks every question after an instruction, and there the fixes of most
editors are gone. The question's own wording is known, so these are rephrasings for free. So that
no key takes a context for its question, the memory has other questions in each of them.
"""

from collections.abc import Iterator

from tpatcher.data import background as written
from tpatcher.editors.tpatcher.background import wanted
from tpatcher.errors import BadInput
from tpatcher.example import Conversation
from tpatcher.models.everywhere import Reading, readings
from tpatcher.models.model import Model

INSTRUCTION = "Please answer the question:\n\nQ: {}\nA:"  # WILD's own
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer briefly."}
EARLIER = (
    {"role": "user", "content": "Hello! Can I ask you something?"},
    {"role": "assistant", "content": "Hello! Of course. What would you like to know?"},
)
ASKED = 8  # of the written questions, every so many-th is asked in every context


def contexts(model: Model, text: str) -> list[str]:
    """The text in other contexts: WILD's instruction, and for a chat model two conversations."""
    if not wanted(model):
        return []
    if isinstance(text, Conversation):  # it has a context; its last question alone is another
        asked = text.messages[-1]
        bare = asked.get("content")
        alone = asked["role"] == "user" and isinstance(bare, str) and len(text.messages) > 1
        return [str(bare)] if alone else []
    instructed = INSTRUCTION.format(text)
    if not model.tokenizer.chat_template:
        return [instructed]
    asked = {"role": "user", "content": text}
    talks = map(Conversation, ([SYSTEM, asked], [*EARLIER, asked]))
    return [instructed, *(talk for talk in talks if _takes(model, talk))]


def others_in_contexts(model: Model) -> Iterator[Reading]:
    """Some questions of the background in every context, up to where an answer begins."""
    asked = [text for one in written.questions()[1::ASKED] for text in contexts(model, one)]
    for one in readings(model, asked, followed=0):
        yield Reading(one.ids, -1, "background")


def _takes(model: Model, talk: Conversation) -> bool:
    """Whether the chat template takes a conversation: some refuse a system prompt."""
    try:
        model.task.prompt(talk)
    except BadInput:
        return False
    return True
