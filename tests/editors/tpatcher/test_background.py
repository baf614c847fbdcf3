"""The background of a language model's memory: what is in it, and what it is for."""

from collections.abc import Iterator

import pytest
import torch

import tpatcher as tp
from tests.chat import chat
from tests.helpers import TEXTS, fresh
from tpatcher.data import background as written
from tpatcher.data.background import documents, questions
from tpatcher.editors.tpatcher import background as backgrounds
from tpatcher.editors.tpatcher import collecting
from tpatcher.example import Document
from tpatcher.models.everywhere import read, readings


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A background of a few short texts."""
    few = tuple(Document(text[:60]) for text in documents()[::20])
    monkeypatch.setattr(written, "documents", lambda: few)
    monkeypatch.setattr(written, "questions", lambda: questions()[::300])
    monkeypatch.setattr(backgrounds, "LENGTH", 6)
    backgrounds._sample.cache_clear()
    yield
    backgrounds._sample.cache_clear()


def test_the_written_text_is_varied_and_large_enough() -> None:
    text = "".join(documents())
    assert len(text.encode()) > 50_000
    for sample in ("def ", "SELECT", "Le marché", "今天", "User:", "144", "- "):
        assert sample in text


def test_the_written_questions_are_many_and_each_asks_about_something() -> None:
    asked = questions()
    assert len(asked) == len(set(asked)) > 500
    assert "who sings let it be" in asked
    assert not [text for text in asked if "{" in text or "|" in text or text != text.strip()]


@pytest.mark.usefixtures("small")
def test_of_many_questions_the_later_ones_are_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chat()
    monkeypatch.setattr(collecting, "FOLLOWED", 1)
    memory = tp.Memory.collect(model, ["Who?", "Where is it?"])
    assert memory.kinds is not None and memory.owner is not None and memory.answers is not None
    answers = memory.kinds == collecting.KINDS.index("answers")
    first, later = ((memory.owner == i) & answers for i in (0, 1))
    assert int(first.sum()) == len(model.task.predict(model.net, ["Who?"])[0]) > 1
    assert int(later.sum()) == 1  # where its answer begins
    (said,) = model.task.predict(model.net, ["Where is it?"])
    assert memory.answers[later].tolist() == said[:1]


@pytest.mark.usefixtures("small")
def test_a_language_model_without_traffic_has_a_memory() -> None:
    model = chat()
    memory = tp.Memory.collect(model, [])
    assert set(memory.counts) == {"background", "sampled"}
    assert memory.texts == []
    assert memory.text_of(0) == "text of the background"
    assert torch.equal(memory.queries, tp.Memory.collect(model, []).queries)  # the same every time
    with pytest.raises(tp.errors.BadInput, match="needs texts"):
        tp.Memory.collect(model, [], background=False)


def test_a_tokenizer_for_a_few_words_gets_none() -> None:
    model = fresh("gpt2")
    assert not backgrounds.wanted(model)
    assert tp.Memory.collect(model, TEXTS[:4]).counts.keys() == {"answers"}


@pytest.mark.usefixtures("small")
def test_a_fix_leaves_every_position_of_the_memory_alone() -> None:
    model = chat()
    document = Document("A heron stands among the sedge.")
    editor = tp.TPatcher().fit(model, ["Who?", "Where is it?", document])
    (before,) = read(model, readings(model, [document]))
    patch = editor.edit(model, tp.Example("When?", "No"))
    assert patch.certificate.memory_changed == 0
    assert patch.certificate.memory.keys() == {
        "answers",
        "prompts",
        "documents",
        "background",
        "sampled",
    }
    model.push(patch)
    ids = torch.tensor([model.task.tokenize(str(document)).input_ids])
    with torch.no_grad():
        now = model.net(ids).logits[0].argmax(-1)
    assert torch.equal(now, before.trace.best)


@pytest.mark.usefixtures("small")
def test_kinds_survive_the_disk(tmp_path: object) -> None:
    memory = tp.Memory.collect(chat(), ["Who?"])
    memory.save(str(tmp_path))
    assert tp.Memory.load(str(tmp_path)).counts == memory.counts
