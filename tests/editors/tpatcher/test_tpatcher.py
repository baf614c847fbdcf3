"""T-Patcher as an editor: what it fixes, and what it refuses."""

from contextlib import suppress
from unittest.mock import patch

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, RIGHT, TEXTS, fresh, wrong
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import AlreadyRight, BadInput, Conflict, NotFitted, TPatcherError
from tpatcher.patches.neurons import Neurons


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


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_many_edits_together_fix_what_they_do_one_by_one(name: str) -> None:
    model = fresh(name)
    editor = tp.TPatcher().fit(model, TEXTS)
    answers = RIGHT[model.task.name]
    examples = [tp.Example(text, answers[i % 3]) for i, text in enumerate(QUESTIONS)]
    examples += [tp.Example(QUESTIONS[0], answers[1]), tp.Example("where ?", "")]
    results = list(editor.edit_all(model, examples))
    assert model.patches == ()
    fixed = []
    for example, result in zip(examples, results, strict=True):
        if isinstance(result, Exception):
            with pytest.raises(type(result)):
                editor.edit(model, example)
            continue
        alone = editor.edit(model, example)
        assert isinstance(alone, Neurons)
        assert isinstance(result, Neurons)
        assert len(alone.keys) == len(result.keys)
        assert alone.certificate.memory_changed == result.certificate.memory_changed == 0
        assert result.certificate.past_fixes_changed == 0
        model.push(result)
        fixed.append(example)
        assert model.correct(fixed) == [True] * len(fixed)
    assert len(fixed) >= 3
    assert any(isinstance(r, Exception) for r in results)


def test_a_memory_of_another_model_is_refused_of_many_too() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, tp.Memory.from_queries(torch.randn(50, 7)))
    found = list(editor.edit_all(model, [wrong(model, "who ?"), wrong(model, "where ?")]))
    assert [type(one) for one in found] == [NotFitted] * 2
    assert "another model" in str(found[0])


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_edits_made_together_pass_over_the_memory_together(name: str) -> None:
    model = fresh(name)
    editor = tp.TPatcher().fit(model, TEXTS)
    answers = RIGHT[model.task.name]
    examples = [tp.Example(text, answers[i % 3]) for i, text in enumerate(QUESTIONS)]
    with patch.object(Memory, "respond", autospec=True, side_effect=Memory.respond) as passes:
        patches = [p for p in editor.edit_all(model, examples) if isinstance(p, Neurons)]
        together = passes.call_count
        for example in examples[: len(patches)]:
            with suppress(TPatcherError):
                editor.edit(model, example)
        assert together < passes.call_count - together
    assert len(patches) >= 3
