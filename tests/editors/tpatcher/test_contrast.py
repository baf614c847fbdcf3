"""A fix that is held against contrast leaves it as it is, and says so."""

import pytest

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import MaxMargin

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


def test_what_cannot_be_told_apart_is_no_contrast() -> None:
    model = fresh("bert")
    said = model.answer(["who wrote hamlet ?"])[0]
    answer = next(a for a in ("yes", "no") if a != said)
    double = tp.Example("who wrote hamlet ?  ", said)  # the same tokens
    example = tp.Example("who wrote hamlet ?", answer, unrelated=(double,))
    patch = tp.TPatcher(MaxMargin(contrast=5)).fit(model, TEXTS).edit(model, example)
    assert "given" not in patch.certificate.contrast
