"""Cached answer cache tell the same as really running the model."""

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, edited, fresh, wearing
from tpatcher.editors import make
from tpatcher.models.retention import AnswerCache, surely_says
from tpatcher.nets import ffn
from tpatcher.patches.neurons import Neurons


def random_patch(model: tp.Model, cache: AnswerCache, draw: torch.Generator) -> Neurons:
    """Two neurons near queries that occur, strong enough to flip some answers and not all."""
    queries = cache.trace.queries
    picked = queries[torch.randint(len(queries), (2,), generator=draw)]
    keys = picked / picked.square().sum(-1, keepdim=True)
    response = torch.sort(queries @ keys.T, dim=0).values
    bar = response[int(0.8 * len(response))]
    scale = 4 / (response[-1] - bar + 1e-3)
    size = cache.trace.states[:, : ffn.find(model.net).width].std()
    return Neurons(
        example=None,
        editor="random",
        layer=-1,
        keys=keys * scale[:, None],
        bias=-bar * scale,
        values=torch.randn(2, ffn.find(model.net).width, generator=draw) * size,
        queries=picked,
        states=picked,
        tokens=torch.zeros(2, dtype=torch.long),
    )


@pytest.mark.parametrize(
    "name", ["bert", "deberta-v2", "bart", "marian", "t5", "gpt2", "llama", "gemma2"]
)
def test_cached_answers_equal_real_ones(name: str) -> None:
    model = fresh(name)
    examples = [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
    cache = AnswerCache(model, examples)
    assert cache.correct(model) == [True] * len(examples)
    assert cache.reruns < 10
    draw = torch.Generator().manual_seed(0)
    flips = 0
    for _ in range(12):
        model.push(random_patch(model, cache, draw))
        real = model.correct(examples)
        assert cache.correct(model) == real
        assert cache.answers(model) == (said := model.answer(TEXTS))
        assert cache.answers(model, [3, 1]) == [said[3], said[1]]
        flips += real.count(False)
        if flips > 4 * len(examples):
            break
    assert flips > 0
    while model.patches:
        model.pop()
        assert cache.correct(model) == model.correct(examples)


def test_past_fixes_are_followed_by_what_their_patches_carry() -> None:
    for name in ("bert", "bart"):
        examples, patches = edited(name)
        model = wearing(name)
        cache = AnswerCache(model, [])
        for example, patch in zip(examples, patches, strict=True):
            model.push(patch)
            cache.add(example, patch)
            assert cache.correct(model) == model.correct(cache.examples)
        model.remove(patches[0].id)
        assert cache.correct(model) == model.correct(cache.examples)
        assert cache.correct(model)[0] is False


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_patches_that_answer_by_themselves_leave_the_cached_answers_of_others(name: str) -> None:
    model = fresh(name)
    said = model.answer(TEXTS)
    cache = AnswerCache(model, [tp.Example(t, a) for t, a in zip(TEXTS, said, strict=True)])
    editor = make("cache", threshold=0.9999).fit(model, TEXTS)
    (examples, patches), past = edited(name), AnswerCache(model, [])
    cache.examples[3], cache.examples[5] = examples[1], examples[2]  # those will be answered
    cache = AnswerCache(model, cache.examples)
    for example in examples[1:3]:
        model.push(editor.edit(model, example))
        past.add(example, model.patches[-1])
    model.push(patches[0])  # neurons beside them
    past.add(examples[0], patches[0])
    assert not model.tail_is_exact
    texts = [example.text for example in cache.examples]
    assert cache.correct(model) == (right := model.correct(cache.examples))
    assert right[3] and right[5]
    assert cache.answers(model) == model.answer(texts)
    assert cache.reruns < len(TEXTS) / 2, "most are known"
    assert past.correct(model) == model.correct(past.examples) == [True] * 3
    new = AnswerCache(model, cache.examples[:6])  # made while such patches are on
    assert new.answers(model) == model.answer(texts[:6])
    model.pop()
    assert cache.answers(model) == model.answer(texts)


def test_without_a_patch_to_follow_the_model_is_run() -> None:
    model = fresh("bert")
    cache = AnswerCache(model, [])
    cache.add(tp.Example("who ?", model.answer(["who ?"])[0]), None)
    assert cache.correct(model) == [True]
    assert cache.reruns == 1


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
def test_what_is_surely_said_is_said(name: str) -> None:
    (examples, patches), model = edited(name), fresh(name)
    model.set_patches(patches)
    fixed = [e.text for e in examples], [e.answer for e in examples]
    assert surely_says(model, *fixed) == [True] * len(examples)
    assert not any(surely_says(fresh(name), *fixed))
    assert surely_says(model, TEXTS[:1], [""]) == [False]  # which no model can be edited to say
