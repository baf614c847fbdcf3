"""Texts in and answers out: labels, lengths, batches, and what is refused."""

import pytest

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, fresh
from tpatcher.errors import BadInput, UnsupportedArchitecture


def test_labels_by_name_or_index() -> None:
    model = fresh("bert")
    said = model.answer(["who wrote hamlet ?"])[0]
    index = model.task.target("", said)[0]
    for answer in (said, said.upper(), f" {said} ", str(index)):
        assert model.correct([tp.Example("who wrote hamlet ?", answer)]) == [True]


def test_an_unknown_label_names_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match=r"unknown label 'yess'. Did you mean 'yes'\? .*no, yes, maybe"
    ):
        fresh("bert").correct([tp.Example("who ?", "yess")])


def test_a_single_logit_answers_yes_or_no() -> None:
    net = zoo.net("bert", id2label={0: "LABEL_0"})
    model = tp.Model(net, zoo.tokenizer("classify"), "classify")
    said = model.answer(TEXTS)
    wrong = tp.Example(
        "the capital of peru", str(1 - int(model.answer(["the capital of peru"])[0]))
    )
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, wrong))
    assert model.correct([wrong]) == [True]
    assert model.answer(TEXTS) == said


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_other_heads_are_refused(kind: str) -> None:
    labels = {0: "x"} if kind == "regression" else {0: "x", 1: "y"}
    net = zoo.net("bert", problem_type=kind, id2label=labels)
    with pytest.raises(UnsupportedArchitecture):
        tp.Model(net, zoo.tokenizer("classify"), "classify")


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_an_empty_text_is_refused(name: str) -> None:
    model = fresh(name)
    with pytest.raises(BadInput, match="empty text"):
        model.answer([" "])
    editor = tp.TPatcher().fit(model, TEXTS)
    with pytest.raises(BadInput, match="empty text"):
        editor.edit(model, tp.Example("", "yes"))


def test_one_text_must_be_in_a_list() -> None:
    with pytest.raises(BadInput, match="list"):
        fresh("bert").answer("who ?")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_a_text_beyond_the_context_is_cut_with_a_warning(name: str) -> None:
    model = fresh(name)
    with pytest.warns(UserWarning, match="cut to the model's"):
        assert len(model.answer(["rome " * 100])) == 1


def test_batches_and_padding_do_not_change_answers() -> None:
    for name in ("bert", "bart", "llama", "gpt2"):
        model = fresh(name)
        together = model.answer(TEXTS[:12], batch=12)
        assert together == [model.answer([text])[0] for text in TEXTS[:12]]


def test_a_short_text_of_many_tokens_is_cut_with_a_warning_too() -> None:
    model = tp.load("builtin-fc")  # bytes are tokens: three for a Chinese character
    with pytest.warns(UserWarning, match="cut to the model's 64"):
        assert len(model.answer(["罗马在秘鲁" * 5])) == 1


def test_an_answer_of_thousands_of_digits_is_no_label() -> None:
    with pytest.raises(BadInput):
        fresh("bert").task.canonical("9" * 5000)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(BadInput, match="half a character"):
        fresh("bert").answer(["who \ud800 ?"])
