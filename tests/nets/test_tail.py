"""The tail of a model, and the same with a head of a few tokens."""

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.models.traces import trace

GENERATES = [name for name, task in zoo.ARCHITECTURES.items() if task != "classify"]


@pytest.mark.parametrize("name", GENERATES)
def test_a_head_of_a_few_tokens_gives_their_logits(name: str) -> None:
    model = fresh(name)
    assert model.tail is not None
    states = trace(model, ["the capital of peru"], model.task.dummy_targets(1)).states
    chosen = torch.tensor([3, 7, 8, 50])
    few = model.tail.restricted_to(chosen)
    assert few is not None
    with torch.no_grad():
        torch.testing.assert_close(few(states), model.tail(states)[:, chosen])


@pytest.mark.parametrize("name", ["bart", "llama", "gemma2"])
def test_any_number_of_states_has_the_logits_that_each_has_alone(name: str) -> None:
    model = fresh(name)
    assert model.tail is not None
    states = trace(model, TEXTS[:17], model.task.dummy_targets(17)).states
    with torch.no_grad():
        alone = torch.cat([model.tail(state[None]) for state in states])
        for n in (0, 1, 3, 4, 15, 16, 17):
            torch.testing.assert_close(model.tail(states[:n]), alone[:n], rtol=1e-4, atol=1e-4)


def test_a_classifier_has_no_tokens_to_choose_from() -> None:
    tail = fresh("bert").tail
    assert tail is not None
    assert tail.restricted_to(torch.tensor([0, 1])) is None


def test_a_value_found_against_a_few_tokens_wins_against_all() -> None:
    model = fresh("bart")
    example = tp.Example("the capital of peru", "lima")
    every = tp.TPatcher().fit(model, TEXTS).edit(model, example)
    patch = tp.TPatcher(MaxMargin(contenders=2)).fit(model, TEXTS).edit(model, example)
    least = [min(p.certificate.confidence.values()) for p in (patch, every)]
    assert least[0] >= 0.9 * least[1]
    model.push(patch)
    assert model.correct([example]) == [True]


def test_a_pooling_head_runs_the_whole_model() -> None:
    net = zoo.net("modernbert", classifier_pooling="mean")
    with pytest.warns(UserWarning, match="whole model will be run"):
        model = tp.Model(net, zoo.tokenizer("classify"), "classify")
    assert model.tail is None
    said = model.answer(["who wrote hamlet ?"])[0]
    example = tp.Example("who wrote hamlet ?", next(a for a in ("yes", "no") if a != said))
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, example))
    assert model.correct([example]) == [True]
