"""Where a neuron usually begins to fire, and that its fields have the last word."""

from dataclasses import replace

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import MaxMargin, crossing


def memory(name: str, reads: str) -> tuple[tp.Model, tp.Memory]:
    model = fresh(name)
    return model, tp.Memory.collect(model, TEXTS[:8], reads=reads)  # type: ignore[arg-type]


def test_a_decoders_neurons_that_read_the_text_fire_later_than_an_encoders() -> None:
    encoder, decoder = (crossing.usual(*memory(name, "text")) for name in ("bart", "gpt2"))
    assert encoder.fraction < decoder.fraction
    assert crossing.usual(*memory("gpt2", "text"), namesakes=True).rarity > 0


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_labels_and_tokens_have_their_own(name: str) -> None:
    expected = crossing.LABELS if name == "bert" else crossing.TOKENS
    assert crossing.usual(*memory(name, "position")) == expected


def test_of_a_large_memory_tokens_fire_earlier() -> None:
    large = tp.Memory.from_queries(torch.zeros(180_000, 1))
    assert crossing.usual(fresh("bart"), large).fraction == pytest.approx(0.3)
    assert crossing.usual(fresh("bert"), large) == crossing.LABELS


def test_what_is_given_counts() -> None:
    model, held = memory("bart", "text")
    found = MaxMargin(crossing=0.9, duals=3)._crossing(model, held)
    assert (found.fraction, found.duals) == (0.9, 3)
    assert MaxMargin()._crossing(model, held) == crossing.TOKENS_BY_TEXT


def test_other_positions_stay_beyond_where_the_neuron_begins_to_fire() -> None:
    assert crossing.TOKENS.own_margin == crossing.LABELS.own_margin == 1
    for f in (0.2, 0.75, 0.9):
        found = replace(crossing.AMONG_NAMESAKES, fraction=f)
        assert 1 - f < found.own_margin <= 1
