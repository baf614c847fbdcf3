"""What a trace holds is what the model computes."""

from dataclasses import fields

import pytest
import torch

from tests import zoo
from tests.helpers import TEXTS, edited, fresh, wearing
from tpatcher.models.traces import trace, traces
from tpatcher.nets import ffn
from tpatcher.nets.reading import Reads


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_the_tail_gives_the_models_own_logits(name: str) -> None:
    model = wearing(name, *edited(name)[1])
    texts = TEXTS[:6]
    with torch.no_grad():
        targets = model.task.predict(fresh(name).net, texts)
        seen = trace(model, texts, targets)
        forced = model.task.force(texts, targets)
        real = model.task.logits(model.net(**forced.inputs), forced)
        delta = model.rows().delta(ffn.find(model.net).act, seen.queries)
        assert model.tail is not None
        torch.testing.assert_close(
            model.tail(model.tail.shift(seen.states, delta)), real.float(), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("reads", ["position", "text"])
@pytest.mark.parametrize("name", zoo.TASKS["seq2seq"])
def test_what_is_seen_while_answering_is_what_a_second_run_would_see(
    name: str, reads: Reads
) -> None:
    model = fresh(name)
    assert model.tail is not None
    ((part, targets, seen),) = traces(model, TEXTS[:6], reads=reads)
    texts = [TEXTS[i] for i in part]
    assert targets == model.task.predict(model.net, texts)
    again = trace(model, texts, targets, reads=reads)
    for field in fields(seen):
        torch.testing.assert_close(
            getattr(seen, field.name), getattr(again, field.name), rtol=1e-3, atol=1e-3
        )


def test_a_model_with_fixes_in_its_last_layer_is_followed_along_its_fixed_answers() -> None:
    model = wearing("bart", *edited("bart")[1])
    ((part, targets, _),) = traces(model, TEXTS[:6])
    assert targets == model.task.predict(model.net, [TEXTS[i] for i in part])
