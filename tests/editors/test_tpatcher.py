"""T-Patcher: its refusals, its certificate, and both presets."""

from random import Random

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.test_rules import TEXTS, fresh
from tpatcher.editors.tpatcher import max_margin as fast
from tpatcher.editors.tpatcher import paper as solver
from tpatcher.errors import AlreadyRight, BadInput, Conflict, NotFitted, NotFixed
from tpatcher.patches.neurons import Neurons


def wrong(model: tp.Model, text: str) -> tp.Example:
    said = model.answer([text])[0]
    return tp.Example(text, next(a for a in ("yes", "no") if a != said))


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


def test_a_mistake_inside_the_memory_names_its_neighbours() -> None:
    model = fresh("bert")
    example = wrong(model, "who wrote hamlet ?")
    memory = tp.Memory.collect(model, TEXTS)
    seen = tp.Memory.collect(model, [example.text, "who ?"])
    memory.queries = torch.cat([memory.queries, seen.queries[seen.rows_of([example.text])] * 1.0])
    assert memory.answers is not None
    memory.answers = torch.cat([memory.answers, torch.tensor([-1])])
    assert memory.owner is not None
    memory.owner = torch.cat([memory.owner, torch.tensor([5])])  # as if it were another text's
    memory.states = memory.gap = None
    with pytest.raises(NotFixed, match=TEXTS[5].replace("?", r"\?").replace(".", r"\.")):
        tp.TPatcher().fit(model, memory).edit(model, example)
    assert model.patches == ()


def test_the_mistake_itself_in_the_traffic_is_no_memory() -> None:
    model = fresh("bert")
    example = wrong(model, "who wrote hamlet ?")
    editor = tp.TPatcher().fit(model, [*TEXTS, example.text])
    model.push(editor.edit(model, example))
    assert model.correct([example]) == [True]


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_nothing_in_memory_changes_and_past_fixes_hold(name: str) -> None:
    model = fresh(name)
    said = model.answer(TEXTS)
    editor = tp.TPatcher().fit(model, TEXTS)
    done = []
    for word in ("river", "city", "bird", "fish", "capital"):
        text = f"what is the {word} of rome ?"
        answers = ["yes", "no", "maybe"] if name == "bert" else ["paris", "lima"]
        example = tp.Example(text, Random(word).choice(answers))
        if model.correct([example])[0]:
            continue
        patch = editor.edit(model, example)
        model.push(patch)
        done.append(example)
        report = patch.report
        assert report["memory answers changed"] == 0
        assert report["past fixes changed"] == 0
        assert report["memory above beta"] == 0
        assert min(report["response"]) > 0
        assert model.correct(done) == [True] * len(done)
        assert model.answer(TEXTS) == said


def test_what_would_change_other_answers_whatever_is_done_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    monkeypatch.setattr(fast, "certificate", lambda *_: ({3, 5}, {}))
    with pytest.raises(NotFixed, match="2 answers of the memory"):
        editor.edit(model, wrong(model, "who wrote hamlet ?"))


def test_training_leaves_no_gradient_behind() -> None:
    model = fresh("bart")
    editor = tp.TPatcher(preset="paper", schedule=solver.Schedule(steps=3)).fit(model, TEXTS)
    editor.edit(model, tp.Example("what is the river of rome ?", "lima"))
    assert all(p.grad is None for p in model.net.parameters())


def test_given_rephrasings_are_fixed_too() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    texts = ["what is the river of rome ?", "which river is in rome ?", "rome river ?"]
    said = model.answer(texts)
    answer = next(a for a in ("yes", "no", "maybe") if a not in said)
    model.push(editor.edit(model, tp.Example(texts[0], answer, rephrasings=tuple(texts[1:]))))
    assert model.answer(texts) == [answer] * 3


@pytest.mark.parametrize("name", ["builtin-fc", pytest.param("builtin-qa", marks=pytest.mark.slow)])
def test_the_papers_preset_fixes_real_mistakes(name: str) -> None:
    model = tp.load(name)
    split = tp.data.dataset(name)
    known, memory = split.retained(tr=200, memory=1500)
    editor = tp.TPatcher(preset="paper").fit(model, memory)
    right = model.correct(split.edit[:12])
    mistakes = [e for e, ok in zip(split.edit, right, strict=False) if not ok][:3]
    before = model.correct(known)
    for example in mistakes:
        patch = editor.edit(model, tp.Example(example.text, example.answer))
        assert isinstance(patch, Neurons)
        assert 1 <= len(patch.keys) <= 5
        assert 125 <= patch.report["steps"] <= 2000
        model.push(patch)
    # in so small a model l_m outweighs l_a for some mistakes, and 2,000 steps do not fix them
    assert sum(model.correct(mistakes)) >= 2
    kept = [now for now, then in zip(model.correct(known), before, strict=True) if then]
    assert sum(kept) >= 0.97 * len(kept)


def test_the_papers_preset_runs_the_model_for_other_layers() -> None:
    model = tp.Model(zoo.net("gpt2"), zoo.tokenizer("causal"), "causal")
    schedule = solver.Schedule(steps=150, repeats=2)
    editor = tp.TPatcher(preset="paper", layer=0, schedule=schedule).fit(model, TEXTS[:20])
    patch = editor.edit(model, tp.Example("what is the river of rome ?", "paris"))
    assert isinstance(patch, Neurons)
    assert patch.layer == -2
    assert patch.report["steps"] <= 150
