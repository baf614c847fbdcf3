"""What a trace holds is what the model computes."""

import pytest
import torch

from tests import zoo
from tests.helpers import TEXTS, edited, fresh, wearing
from tpatcher.models.traces import trace
from tpatcher.nets import ffn


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
