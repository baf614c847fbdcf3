"""Every position of ordinary text: what is read is what the net really computes there."""

import pytest
import torch

import tpatcher as tp
from tests.chat import chat
from tests.helpers import TEXTS, fresh
from tpatcher.example import Conversation, Document
from tpatcher.models import everywhere
from tpatcher.models.everywhere import Read, read, readings

CAUSAL = ["gpt2", "llama", "opt", "gemma2"]


def read_all(model: tp.Model, texts: list[str]) -> list[Read]:
    return list(read(model, readings(model, texts)))


@pytest.mark.parametrize("name", CAUSAL)
def test_winner_and_gap_are_those_of_the_nets_own_logits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everywhere, "LOGITS", 1)  # in blocks
    model = fresh(name)
    text = Document(TEXTS[0] + " " + TEXTS[1])
    (found,) = read_all(model, [text])
    ids = torch.tensor(model.task.tokenize(text).input_ids)
    with torch.no_grad():
        logits = model.net(ids[None]).logits[0].float()
    two = logits.topk(2, dim=-1)
    assert torch.equal(found.trace.best, two.indices[:, 0])
    torch.testing.assert_close(
        found.trace.gap, two.values[:, 0] - two.values[:, 1], atol=1e-3, rtol=0
    )
    assert found.trace.tokens[:-1].tolist() == ids[1:].tolist()
    assert set(found.kinds) == {"documents"}


def test_a_question_is_read_with_its_answer() -> None:
    model = fresh("gpt2")
    (found,) = read_all(model, [TEXTS[0]])
    (said,) = model.task.predict(model.net, [TEXTS[0]])
    answer = [k == "answers" for k in found.kinds]
    assert found.trace.best[torch.tensor(answer)].tolist() == said
    assert answer.index(True) == len(model.task.tokenize(TEXTS[0]).input_ids) - 1


def test_a_text_that_begins_like_another_is_read_from_where_they_part() -> None:
    model = fresh("gpt2")
    (found,) = read_all(model, [Document("the dog is red"), Document("the dog is blue")])
    assert sorted(found.trace.owner.tolist()).count(0) + found.trace.owner.tolist().count(1) == 5


def test_a_long_text_is_read_in_pieces() -> None:
    model = fresh("gpt2")  # of 64 positions
    long = Document(" ".join(TEXTS))
    n = len(model.task.tokenize(str(long), verbose=False).input_ids)
    read = sum(len(found.kinds) for found in read_all(model, [long]))
    assert n - 5 <= read <= n, "pieces may begin with the same word, which is read once"


def test_messages_without_a_chat_template_are_refused() -> None:
    talk = Conversation([{"role": "user", "content": "the dog"}])
    with pytest.raises(tp.errors.BadInput, match="no chat template"):
        fresh("gpt2").answer([talk])


def test_a_conversation_that_ends_with_an_answer_is_read_and_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = chat()
    monkeypatch.setattr(type(model.task), "predict", None)  # nothing may be generated
    talk = Conversation(
        [{"role": "user", "content": "Ja?"}, {"role": "assistant", "content": "Nein."}]
    )
    (found,) = read_all(model, [talk])
    assert model.tokenizer.decode([1, *found.trace.tokens[:-1]]) == (
        "<s>user\nJa?</s><s>assistant\nNein.</s>"
    )
