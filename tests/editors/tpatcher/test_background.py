"""The background of a language model's memory: what is in it, and what it is for."""

from collections.abc import Iterator

import pytest
import torch

import tpatcher as tp
from tests.chat import chat
from tests.helpers import TEXTS, fresh
from tpatcher.data import background as written
from tpatcher.data.background import documents
from tpatcher.editors.tpatcher import background as backgrounds
from tpatcher.example import Document
from tpatcher.models.everywhere import read, readings


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A background of a few short texts."""
    few = tuple(Document(text[:60]) for text in documents()[::20])
    monkeypatch.setattr(written, "documents", lambda: few)
    monkeypatch.setattr(backgrounds, "LENGTH", 6)
    backgrounds._sample.cache_clear()
    yield
    backgrounds._sample.cache_clear()


def test_the_written_text_is_varied_and_large_enough() -> None:
    text = "".join(documents())
    assert len(text.encode()) > 50_000
    for sample in ("def ", "SELECT", "Le marché", "今天", "User:", "144", "- "):
        assert sample in text


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
        "answers", "prompts", "documents", "background", "sampled"
    }  # fmt: skip
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
