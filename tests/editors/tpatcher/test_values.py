"""Values: the target wins at every level, if need be by its margin alone."""

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, fresh, wrong
from tpatcher.editors.tpatcher import MaxMargin, values
from tpatcher.errors import NotFixed

ASKED = tp.Example("who wrote hamlet ?", "paris")


def test_values_win_at_every_level() -> None:
    torch.manual_seed(0)
    head = torch.randn(50, 16)
    state = torch.randn(3, 16)
    levels = torch.tensor([0.5, 2.0, 10.0])[:, None, None]

    def logits(v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(state + levels * v, (16,)) @ head.T

    tokens = torch.tensor([4, 7, 9])
    found, probability = values.descend(logits, tokens, state)
    assert (logits(found).argmax(-1) == tokens).all()
    assert probability.shape == (3, 3)
    assert (probability > 0.5).all()


def dull(name: str, share: float) -> tp.Model:
    """A model whose head has the answer's row near the middle of all rows."""
    task = zoo.ARCHITECTURES[name]
    net, tokenizer = zoo.net(name, tie_word_embeddings=False), zoo.tokenizer(task)
    rows, token = net.lm_head.weight.data, tokenizer.convert_tokens_to_ids(ASKED.answer)
    middle = rows.mean(0)
    rows[token] = middle + share * (rows[token] - middle)
    return tp.Model(net, tokenizer, task, name=name)


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_a_token_that_wins_only_by_its_margin_is_still_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dull(name, 0.2)
    editor = tp.TPatcher().fit(model, TEXTS)
    model.push(editor.edit(model, ASKED))
    assert model.answer([ASKED.text]) == [ASKED.answer]
    assert max(model.patches[0].certificate.confidence.values()) < 0.1  # not by being probable
    monkeypatch.setattr(values, "INVERSE_TEMPERATURES", ())
    model.pop()
    with pytest.raises(NotFixed, match="does not say token"):
        editor.edit(model, ASKED)


def test_a_token_in_the_midst_of_the_others_is_refused() -> None:
    model = dull("bart", 0.0)
    with pytest.raises(NotFixed, match="another token stays above it"):
        tp.TPatcher().fit(model, TEXTS).edit(model, ASKED)


@pytest.mark.parametrize("name", ["bert", "marian"])
def test_a_steep_neurons_value_wins_where_the_mistake_will_be(name: str) -> None:
    model = fresh(name)
    example = wrong(model, "who wrote hamlet ?")
    for crossing, steep in ((0.01, True), (0.6, False)):
        patch = tp.TPatcher(MaxMargin(crossing=crossing)).fit(model, TEXTS).edit(model, example)
        own = max(patch.certificate.response) / MaxMargin.steepness
        levels = [float(level) for level in patch.certificate.confidence]
        assert (own > 10.0) == steep == (len(levels) > len(MaxMargin.levels))
        assert not steep or max(levels) == pytest.approx(own, abs=0.1)
        model.push(patch)
        assert model.correct([example]) == [True]
        model.pop()
