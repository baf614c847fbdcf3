"""The guard sees what a bad patch would do, by itself and whatever made the patch."""

import json
from dataclasses import replace

import pytest
import torch

from tests.service import served
from tests.service.served import ASKED, texts, wrong
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.neurons import Neurons
from tpatcher.service.answering import TracedModel
from tpatcher.service.guard import Guard, Rules, broken_fixes
from tpatcher.service.recent import Question


@pytest.fixture(scope="module")
def good() -> tuple[Model, Neurons, Example]:
    model, editor = served.fitted()
    example = Example(ASKED, wrong(model.answer([ASKED])[0]))
    return model, editor.edit(model, example), example  # type: ignore[return-value]


def guard(model: Model, **rules: float) -> Guard:
    asked = texts()[:60]
    kept = [Example(t, a) for t, a in zip(asked, model.answer(asked), strict=True)]
    return Guard(model, kept, served.fitted()[1].memory, Rules(**rules))  # type: ignore[arg-type]


def with_patch(model: Model, patch: Neurons) -> Model:
    other = model.twin()
    other.push(patch)
    return other


def everywhere(patch: Neurons) -> Neurons:
    """A patch that fires on everything, strongly."""
    return replace(patch, bias=patch.bias + 5000, id="")


def test_a_good_patch_passes(good: tuple[Model, Neurons, Example]) -> None:
    model, patch, example = good
    verdict = guard(model).check(model, (), with_patch(model, patch), patch, example)
    assert verdict.right and not verdict.reasons and verdict.share == 0.0
    assert verdict.canaries == 60 and verdict.traffic == 200
    assert all(n["response"] <= 0 for n in verdict.nearest)


def test_a_patch_that_fires_everywhere_is_refused(good: tuple[Model, Neurons, Example]) -> None:
    model, patch, example = good
    bad = everywhere(patch)
    verdict = guard(model).check(model, (), with_patch(model, bad), bad, example)
    assert verdict.refuses and verdict.right
    assert len(verdict.flipped) == 20 and verdict.wrong_canaries > 20 and verdict.share > 0.5  # type: ignore[operator]
    assert any("canaries would become wrong" in r for r in verdict.reasons)
    assert any("of traffic would fire it" in r for r in verdict.reasons)
    lenient = guard(model, max_flips=1000, max_firing_share=1.0)
    assert not lenient.check(model, (), with_patch(model, bad), bad, example).reasons


def test_a_patch_that_does_not_help_is_refused(good: tuple[Model, Neurons, Example]) -> None:
    model, patch, example = good
    idle = replace(patch, values=torch.zeros_like(patch.values), id="")
    verdict = guard(model).check(model, (), with_patch(model, idle), idle, example)
    assert not verdict.right and f"not {example.answer!r}" in verdict.reasons[0]


@pytest.mark.parametrize("name, old, new", [("bert", "no", "maybe"), ("gpt2", "paris", "rome")])
def test_past_fixes_that_would_break_are_found(name: str, old: str, new: str) -> None:
    model, editor = served.fitted(name)
    worn = model.twin()
    for text in ("is rome red ?", "where is the cat ?", "who is the dog ?"):
        if not worn.correct([Example(text, old)])[0]:  # an earlier fix may have covered it
            worn.push(editor.edit(worn, Example(text, old)))
    example = Example(ASKED, new)
    patch = editor.edit(worn, example)
    assert isinstance(patch, Neurons)
    for one in (patch, everywhere(patch)):
        after = with_patch(worn, one)
        held = after.correct([p.example for p in worn.patches if p.example])
        assert broken_fixes(worn, after, one, example) == [i for i, ok in enumerate(held) if not ok]
    assert not all(held)


def test_the_same_text_fixed_again_is_not_a_broken_fix(
    good: tuple[Model, Neurons, Example],
) -> None:
    model, patch, _ = good
    worn = with_patch(model, patch)
    other = Example(ASKED, model.answer([ASKED])[0])
    again = served.fitted()[1].edit(worn, other, supersede=True)
    after = worn.twin()
    after.push(again)
    assert broken_fixes(worn, after, again, other) == []


def asked(model: Model, texts: list[str], answer: int) -> list[Question]:
    """Questions that were asked, all answered alike, with the queries of the text that is fixed."""
    reply = TracedModel(model).answer([ASKED])[0]
    tokens = torch.full((len(reply.queries),), answer)
    return [Question(text, "no", reply.queries, tokens) for text in texts]


def test_a_common_mistake_is_not_refused_for_being_common(
    good: tuple[Model, Neurons, Example],
) -> None:
    model, patch, example = good
    other = next(i for i in range(3) if i not in patch.tokens.tolist())
    recent = asked(model, [f"{ASKED} {n}" for n in range(411)], other)
    after = with_patch(model, patch)
    verdict = guard(model).check(model, (), after, patch, example, recent)
    assert not verdict.reasons and verdict.share == 0.0
    assert (verdict.asked, verdict.asked_firing) == (411, 411)  # it is said, and refuses nothing


def test_the_operators_canaries_bind_everyone_but_an_admin() -> None:
    model, editor = served.fitted()
    text = texts()[0]
    right = model.answer([text])[0]
    canary, fix = Example(text, right), Example(text, wrong(right))
    patch = editor.edit(model, fix)
    after = model.twin()
    after.push(patch)
    drawn = Guard(model, [canary], editor.memory, Rules())
    own = Guard(model, [canary], editor.memory, Rules(), binding=[text])
    for checker, admin, refused in ((drawn, False, False), (own, False, True), (own, True, False)):
        verdict = checker.check(model, (), after, patch, fix, by_admin=admin)
        assert verdict.refuses is refused
        assert any("only an admin" in reason for reason in verdict.reasons) is refused
    back = editor.edit(after, canary, supersede=True)  # to make it right again is everybody's
    again = after.twin()
    again.push(back)
    assert not own.check(after, (1,), again, back, canary).reasons


def test_texts_that_are_no_rephrasings_are_refused_to_all_but_an_admin() -> None:
    model, editor = served.fitted()
    memory = editor.memory
    text = "who wrote the large green book ?"
    near = ["the large green book was wrote ?", "wrote who the green large book ?"]
    far = [t for t in texts() if not set(t.split()) & set(text.split())][:8]
    fix = Example(text, wrong(model.answer([text])[0]), rephrasings=(*near, *far))
    patch = editor.edit(model, replace(fix, rephrasings=()))
    after = model.twin()
    after.push(patch)
    checker = Guard(model, [], memory, Rules())
    found = checker.check(model, (), after, patch, fix)
    assert found.refuses and len(found.unlike) >= 4 and set(found.unlike) <= set(far)
    assert f"{len(found.unlike)} of {len(fix.rephrasings)} rephrasings" in found.reasons[0]
    assert not checker.check(model, (), after, patch, fix, by_admin=True).reasons
    honest = replace(fix, rephrasings=tuple(near))
    assert not checker.check(model, (), after, patch, honest).unlike


def test_a_private_guard_names_no_text_of_others(good: tuple[Model, Neurons, Example]) -> None:
    model, patch, example = good
    bad = everywhere(patch)
    verdict = guard(model, private=True).check(model, (), with_patch(model, bad), bad, example)
    assert verdict.refuses and len(verdict.flipped) == 20 and verdict.nearest
    said = json.dumps(verdict.to_json())
    assert not any(text in said for text in texts())
