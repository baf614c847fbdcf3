"""A mistake under dropout: what is drawn once is what the real model would have done."""

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import ASKED, RIGHT, TEXTS, edited, fresh
from tpatcher.editors.tpatcher import Paper, dropout
from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.models.positions import CachedPositions, RunPositions
from tpatcher.nets import reading
from tpatcher.nets.rows import Rows
from tpatcher.nets.twin import twin


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2", "gemma2"])
def test_dropout_reaches_what_a_patch_adds_as_in_the_real_model(name: str) -> None:
    """Cached views with new neurons give the logits of the model, run with the same dropout."""
    p = {"bert": {"hidden_dropout_prob": 0.3}, "gpt2": {"resid_pdrop": 0.3}, "gemma2": {}}
    p["bart"] = {"dropout": 0.3, "activation_dropout": 0.2}
    task = zoo.ARCHITECTURES[name]
    net = zoo.net(name, **p[name])  # type: ignore[arg-type]
    model = tp.Model(net, zoo.tokenizer(task), task)
    model.push(edited(name)[1][0])  # an older patch, which dropout reaches too
    text, answer = ASKED[1], RIGHT[task][1]
    mistake = Mistake.find(model, tp.Example(text, answer))
    here = mistake.positions
    assert isinstance(here, CachedPositions)
    views = dropout.draw(mistake, torch.arange(2 if len(here.target) > 1 else 1), 6, seed=3)
    torch.manual_seed(1)
    n = len(views.wrong)
    rows = Rows(torch.randn(n, 32), torch.ones(n), torch.randn(n, 32))
    assert views.states is not None
    delta = views.delta(torch.arange(6), rows, here.ffn.act).flatten(0, 1)
    found = here.tail(here.tail.shift(views.states.flatten(0, 1), delta))
    run = twin(model.net)
    reading.widen(run, here.ffn, here.rows + rows)
    run.train()
    for key, part in run.named_modules():  # a classifier's own dropout is drawn at every step
        if key == "dropout":
            part.eval()
    forced = model.task.force([text] * 6, [mistake.target] * 6)
    with torch.no_grad():
        torch.manual_seed(3)
        wanted = model.task.logits(run(**forced.inputs), forced)
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=1e-3)
    dropped = {"bert": 0.3, "bart": 0.3, "gpt2": 0.3, "gemma2": 0.0}[name]
    assert views.output_factor is not None
    share = float((views.output_factor.abs() < 1e-3).float().mean())
    assert share == pytest.approx(dropped, abs=0.1)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_the_encoder_is_drawn_once_and_its_draws_are_what_the_decoder_reads(name: str) -> None:
    model, text = fresh(name), ASKED[0]
    here = Mistake.find(model, tp.Example(text, RIGHT["seq2seq"][0]), layer=-2)
    views = dropout.draw(here, here.wrong[:1], 3, seed=0)
    assert views.encoded is not None and len(views.encoded) == 3
    assert isinstance(here.positions, RunPositions)
    rows, ran = Rows.empty(here.positions.ffn.width), list[int]()
    model.net.get_encoder().register_forward_hook(lambda *_: ran.append(1))
    repeated = RunPositions(model, text, here.target, -2, "position", repeats=3)
    ran.clear()
    plain = views.encoded[:1].expand_as(views.encoded)
    torch.testing.assert_close(*repeated.logits(rows, plain).chunk(3)[:2])
    other = repeated.logits(rows, views.encoded)
    assert not torch.allclose(other, repeated.logits(rows, plain)) and not ran


def test_steps_of_training_in_another_layer_do_not_run_the_encoder() -> None:
    model, ran = fresh("bart"), list[int]()
    model.net.get_encoder().register_forward_hook(lambda *_: ran.append(1))
    example, runs = tp.Example(ASKED[0], RIGHT["seq2seq"][0]), []
    for steps in (2, 12):
        editor = tp.TPatcher(Paper(steps=steps), layer=-2).fit(model, TEXTS[:20])
        ran.clear()
        editor.edit(model, example)
        runs.append(len(ran))
    assert runs[0] == runs[1] > 0
