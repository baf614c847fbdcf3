"""Cached answer paths tell the same as really running the model."""

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.test_rules import TEXTS, edited, fresh, wearing
from tpatcher.models.retention import AnswerCache
from tpatcher.models.traces import trace
from tpatcher.patches.neurons import Neurons


def random_patch(model: tp.Model, paths: AnswerCache, draw: torch.Generator) -> Neurons:
    """Two neurons near queries that occur, strong enough to flip some answers and not all."""
    queries = paths.seen.queries
    picked = queries[torch.randint(len(queries), (2,), generator=draw)]
    keys = picked / picked.square().sum(-1, keepdim=True)
    response = torch.sort(queries @ keys.T, dim=0).values
    bar = response[int(0.8 * len(response))]
    scale = 4 / (response[-1] - bar + 1e-3)
    size = paths.seen.states[:, : keys.shape[1]].std()
    return Neurons(
        example=None, editor="random", layer=-1, keys=keys * scale[:, None], bias=-bar * scale,
        values=torch.randn(keys.shape, generator=draw) * size,
        queries=picked, states=picked, tokens=torch.zeros(2, dtype=torch.long),
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["bert", "deberta-v2", "bart", "marian", "t5", "gpt2", "llama", "gemma2"]
)
def test_cached_answers_equal_real_ones(name: str) -> None:
    model = fresh(name)
    examples = [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
    paths = AnswerCache(model, examples)
    assert paths.correct(model) == [True] * len(examples)
    assert paths.ran < 10
    draw = torch.Generator().manual_seed(0)
    flips = 0
    for _ in range(12):
        model.push(random_patch(model, paths, draw))
        real = model.correct(examples)
        assert paths.correct(model) == real
        flips += real.count(False)
        if flips > 4 * len(examples):
            break
    assert flips > 0
    while model.patches:
        model.pop()
        assert paths.correct(model) == model.correct(examples)


def test_past_fixes_are_followed_by_what_their_patches_carry() -> None:
    for name in ("bert", "bart"):
        examples, patches = edited(name)
        model = wearing(name)
        paths = AnswerCache(model, [])
        for example, patch in zip(examples, patches, strict=True):
            model.push(patch)
            paths.add(example, patch)
            assert paths.correct(model) == model.correct(paths.examples)
        model.remove(patches[0].id)
        assert paths.correct(model) == model.correct(paths.examples)
        assert paths.correct(model)[0] is False


def test_without_a_patch_to_follow_the_model_is_run() -> None:
    model = fresh("bert")
    paths = AnswerCache(model, [])
    paths.add(tp.Example("who ?", model.answer(["who ?"])[0]), None)
    assert paths.correct(model) == [True]
    assert paths.ran == 1


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_the_tail_gives_the_models_own_logits(name: str) -> None:
    model = wearing(name, *edited(name)[1])
    texts = TEXTS[:6]
    with torch.no_grad():
        targets = model.task.predict(fresh(name).net, texts)
        seen = trace(model, texts, targets)
        forced = model.task.force(texts, targets)
        real = model.task.logits(model.net(**forced.inputs), forced)
        from tpatcher.nets import ffn
        from tpatcher.patches.neurons import rows

        keys, bias, values = rows(model.patches)
        delta = ffn.find(model.net).act(seen.queries @ keys.T + bias) @ values
        assert model.tail is not None
        torch.testing.assert_close(
            model.tail(model.tail.shift(seen.states, delta)), real.float(), rtol=1e-3, atol=1e-3
        )
