"""T-Patcher as an editor: what it fixes, and what it refuses."""

import pytest

import tpatcher as tp
from tests.helpers import TEXTS, fresh, wrong
from tpatcher.errors import AlreadyRight, BadInput, Conflict, NotFitted


def test_without_memory() -> None:
    model = fresh("bert")
    with pytest.raises(NotFitted, match="40,000"):
        tp.TPatcher().edit(model, wrong(model, "who ?"))


def test_what_is_right_already() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    said = model.answer(["who wrote hamlet ?"])[0]
    with pytest.raises(AlreadyRight):
        editor.edit(model, tp.Example("who wrote hamlet ?", said))
    other = wrong(model, "who wrote hamlet ?").answer
    with pytest.raises(AlreadyRight):
        editor.edit(model, tp.Example("who wrote hamlet ?", other, also=(said,)))


def test_the_same_text_with_another_answer_is_a_conflict() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    said = model.answer(["who wrote hamlet ?"])[0]
    first, second = (a for a in ("no", "yes", "maybe") if a != said)
    model.push(editor.edit(model, tp.Example("who wrote hamlet ?", first)))
    with pytest.raises(Conflict, match=model.patches[0].id):
        editor.edit(model, tp.Example("who wrote hamlet ?", second))
    model.push(editor.edit(model, tp.Example("who wrote hamlet ?", second), supersede=True))
    assert model.answer(["who wrote hamlet ?"]) == [second]


def test_a_layer_that_is_not_there() -> None:
    model = fresh("bert")
    with pytest.raises(BadInput, match="layer 7"):
        tp.TPatcher(layer=7).fit(model, TEXTS)


def test_the_mistake_itself_in_the_traffic_is_no_memory() -> None:
    model = fresh("bert")
    example = wrong(model, "who wrote hamlet ?")
    editor = tp.TPatcher().fit(model, [*TEXTS, example.text])
    model.push(editor.edit(model, example))
    assert model.correct([example]) == [True]


def test_given_rephrasings_are_fixed_too() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    texts = ["what is the river of rome ?", "which river is in rome ?", "rome river ?"]
    said = model.answer(texts)
    answer = next(a for a in ("yes", "no", "maybe") if a not in said)
    model.push(editor.edit(model, tp.Example(texts[0], answer, rephrasings=tuple(texts[1:]))))
    assert model.answer(texts) == [answer] * 3
