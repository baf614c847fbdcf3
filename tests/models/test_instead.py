"""What a model says instead of an answer that is only known to be wrong."""

import pytest

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, fresh
from tpatcher.errors import AlreadyRight, BadInput, NotFixed

ASKED = "who wrote hamlet ?"


def test_the_next_best_label_can_be_fixed() -> None:
    model = fresh("bert")
    wrong = model.answer([ASKED])[0]
    example = tp.instead(model, ASKED, wrong=wrong)
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, example))
    assert model.correct([example]) == [True]
    with pytest.raises(AlreadyRight, match="and not with"):
        tp.instead(model, ASKED, wrong=wrong)


def test_the_next_best_text_can_be_fixed() -> None:
    model, asked = tp.load("builtin-qa"), "What is the capital of France?"
    wrong = model.answer([asked])[0]
    example = tp.instead(model, asked, wrong=wrong.upper())
    assert example.answer and wrong not in example.answer
    texts = tp.data.traffic("builtin-qa", limit=200)
    model.push(tp.TPatcher().fit(model, texts).edit(model, example))
    assert model.correct([example]) == [True]


def test_of_a_classifier_it_is_the_next_label() -> None:
    model = fresh("bert")
    wrong = model.answer([ASKED])[0]
    inputs = zoo.tokenizer("classify")(ASKED, return_tensors="pt")
    keys = ("input_ids", "attention_mask")
    logits = model.net(**{k: inputs[k] for k in keys}).logits[0]
    second = model.task.decode([[int(logits.argsort(descending=True)[1])]])[0]
    assert tp.instead(model, ASKED, wrong=wrong, abstention="x").answer == second
    with pytest.raises(BadInput, match="unknown label"):
        tp.instead(model, ASKED, wrong="purple")


def test_a_generator_abstains_if_the_operator_wants_it() -> None:
    model = fresh("gpt2")
    wrong = model.answer([ASKED])[0]
    found = tp.instead(model, ASKED, wrong=wrong, abstention="paris", rephrasings=["who ?"])
    assert (found.answer, found.rephrasings) == ("paris", ("who ?",))


def test_where_no_other_answer_ends_there_is_nothing_to_aim_at() -> None:
    model = fresh("gpt2")  # it has learned nothing, so it goes on until it is cut off
    with pytest.raises(NotFixed, match="give a text to abstain with"):
        tp.instead(model, ASKED, wrong=model.answer([ASKED])[0])
