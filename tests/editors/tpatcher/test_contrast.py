"""A fix that is held against contrast leaves it as it is, and says so."""

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.chat import chat
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import MaxMargin, crossing
from tpatcher.editors.tpatcher.contrast import Contrast
from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.editors.tpatcher.phrases import Phrases

TRAFFIC = [
    *TEXTS,
    *(
        f"{ask} of {city} ?"
        for ask in ("the river", "the bird", "the dog")
        for city in ("rome", "lima", "paris", "madrid")
    ),
]


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_contrast_keeps_its_answers(name: str) -> None:
    model = fresh(name)
    answer = "maybe" if name == "bert" else "a red bird"
    sister = "what is the city of rome ?"
    kept = tp.Example(sister, model.answer([sister])[0])
    example = tp.Example("what is the river of rome ?", answer, unrelated=(kept,))
    editor = tp.TPatcher(MaxMargin(reads="text", contrast=40)).fit(model, TRAFFIC)
    patch = editor.edit(model, example)
    assert patch.certificate.contrast["given"] == 1
    model.push(patch)
    assert model.correct([example, kept]) == [True, True]


CLASSIFIERS = [name for name, task in zoo.ARCHITECTURES.items() if task == "classify"]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_contrast_of_a_label_is_run_in_one_batch_with_the_mistake(name: str) -> None:
    model = fresh(name)
    asked = "what is the river of 12 cities in rome ?"
    example = tp.Example(asked, "maybe", rephrasings=("rome ?",))
    solver, memory = MaxMargin(contrast=40), tp.Memory.collect(model, TRAFFIC)
    beside = solver.beside(model, example, memory)
    assert len(beside) == 3 and beside[0] == "rome ?"
    alone, both = Mistake.find(model, example), Mistake.find(model, example, beside=beside)
    assert list(both.beside) == list(beside) and not alone.beside
    torch.testing.assert_close(both.queries, alone.queries)
    torch.testing.assert_close(both.logits, alone.logits)
    found = [Contrast.of(one, memory.phrases, 40) for one in (alone, both)]
    assert found[0].kinds == found[1].kinds
    torch.testing.assert_close(vars(found[0].trace), vars(found[1].trace))


def test_what_cannot_be_told_apart_is_no_contrast() -> None:
    model = fresh("bert")
    said = model.answer(["who wrote hamlet ?"])[0]
    answer = next(a for a in ("yes", "no") if a != said)
    double = tp.Example("who wrote hamlet ?  ", said)  # the same tokens
    example = tp.Example("who wrote hamlet ?", answer, unrelated=(double,))
    patch = tp.TPatcher(MaxMargin(contrast=5)).fit(model, TEXTS).edit(model, example)
    assert "given" not in patch.certificate.contrast


CITIES = ("Rome", "Lima", "Paris", "Madrid")
NAMED = Phrases(["the dog of Lima", "the dog of Madrid", *(["what is the river of it ?"] * 2000)])


@pytest.mark.parametrize("name", ["bart", "t5", "marian", "llama"])
def test_contrast_is_the_mistakes_own_queries_in_other_texts(name: str) -> None:
    model, answer = fresh(name), "a red bird"
    mistake = Mistake.find(model, tp.Example("the river of Lima ?", answer), -1, "text")
    if name == "llama":
        found = Contrast.of(mistake, NAMED, 0, namesakes=12)
    else:
        asked = [f"the {one} of {city} ?" for one in ("river", "bird", "dog") for city in CITIES]
        found = Contrast.of(mistake, Phrases([*asked, *["what is it ?"] * 100]), 8)
    assert 0 < len(found.texts) <= 12
    own, d = mistake.queries[mistake.wrong], model.net.config.hidden_size
    for i, text in enumerate(found.texts):
        rows = found.trace.queries[found.trace.owner == i]
        assert torch.equal(rows[:, :d], own[:, :d]), "where the answer is wrong"
        other = Mistake.find(model, tp.Example(text, answer), -1, "text").queries[mistake.wrong]
        torch.testing.assert_close(rows[:, d:], other[:, d:])
    assert not torch.allclose(found.trace.queries[:, d:], own[:1, d:]), "some are told apart"
    assert (found.trace.best == -1).all(), "what is said there is not known"


def test_a_chat_models_namesakes_are_read_where_their_prompts_end() -> None:
    model, answer = chat(), "Ja, he"
    mistake = Mistake.find(model, tp.Example("Who is Bo Ek?", answer), -1, "text")
    found, d = Contrast.of(mistake, NAMED, 0, namesakes=4), model.net.config.hidden_size
    assert found.texts
    for i, text in enumerate(found.texts):
        rows = found.trace.queries[found.trace.owner == i]
        other = Mistake.find(model, tp.Example(text, answer), -1, "text").queries[mistake.wrong]
        torch.testing.assert_close(rows[:, d:], other[:, d:], atol=1e-4, rtol=1e-4)


def test_namesakes_of_a_conversation_are_asked_in_it() -> None:
    model = chat()
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who is Bo Ek?"},
    ]
    mistake = Mistake.find(model, tp.Example(tp.Conversation(talk), "Ja"), -1, "text")
    found = Contrast.of(mistake, NAMED, 0, namesakes=4)
    assert found.texts
    for text in found.texts:
        assert isinstance(text, tp.Conversation)
        assert text.messages[0] == talk[0]
        assert text.messages[1]["content"] != talk[1]["content"]


@pytest.mark.parametrize(("rarity", "kept"), [(0.0, True), (1e9, False)])
def test_namesakes_that_would_make_a_neuron_common_are_left_out(
    rarity: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    among = crossing.Crossing(0.5, duals=2, rarity=rarity)
    monkeypatch.setattr(crossing, "AMONG_NAMESAKES", among)
    model = fresh("llama")
    # words that the tokenizer knows: others are all one token, and rounding would tell them apart
    monkeypatch.setattr(Phrases, "names", ["lima", "madrid", "rome"])
    editor = tp.TPatcher(MaxMargin(reads="text", namesakes=6)).fit(model, TRAFFIC)
    patch = editor.edit(model, tp.Example("what is the river of Zed ?", "a red bird"))
    assert bool(patch.certificate.contrast) == kept
