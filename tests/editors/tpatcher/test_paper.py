"""The paper's formulas, against numbers worked out by hand, and mistakes that they fix."""

from math import e, exp

import pytest
import torch
from torch import nn

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import Paper, paper
from tpatcher.nets.rows import Rows
from tpatcher.patches.neurons import Neurons


def no_loss(drawn: torch.Tensor, rows: Rows) -> torch.Tensor:
    return torch.zeros(())


def test_s_is_the_mean_of_the_k_largest_exponentials() -> None:
    v = torch.tensor([[0.0, 1.0], [-1.0, 2.0]])
    assert paper.S(v, 2) == pytest.approx((exp(2) + e) / 2, rel=1e-6)
    assert paper.S(v, 100) == pytest.approx((1 + e + exp(-1) + exp(2)) / 4, rel=1e-6)


def test_activation_loss() -> None:
    assert paper.l_a(torch.tensor([2.0])) == pytest.approx(exp(-2))
    # of several patches, the k_a least activated count: exp(0), exp(-1)
    assert paper.l_a(torch.tensor([1.0, 0.0, 5.0]), k_a=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_memory_below_beta() -> None:
    memory = torch.tensor([[-3.0], [-4.0], [-9.0]])
    assert paper.l_m1(memory, beta=-3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_the_mistake_above_memory_by_gamma() -> None:
    memory, own = torch.tensor([[-3.0, 0.0]]), torch.tensor([1.0, 3.0])
    # differences -4 and -3, plus γ = 3: exp(-1) and exp(0)
    assert paper.l_m2(memory, own, gamma=3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_is_the_sum_of_both() -> None:
    response, own = torch.tensor([[-3.0]]), torch.tensor([3.0])
    both = Paper().l_m(response, own, -3.0, 3.0)
    assert both == pytest.approx(1 + exp(-3))  # l_m1 = exp(0), l_m2 = exp(-3 - 3 + 3)
    one = Paper(use_lm2=False).l_m(response, own, -3.0, 3.0)
    assert one == pytest.approx(1.0)


def test_the_initial_key_activates_with_one() -> None:
    """q/|q|² responds with 1 to q: after no step of training, key and bias are just that."""
    torch.manual_seed(0)
    queries = torch.randn(1, 2, 8).expand(4, 2, 8)
    views = paper.Views(queries, torch.tensor([0, 1]))
    rows, steps = Paper(steps=0).train(
        views, [torch.randn(5, 8)], torch.randn(5, 8), nn.GELU(), no_loss, lambda rows: True
    )
    assert steps == 0
    torch.testing.assert_close(rows.response(queries[0]).diagonal(), torch.ones(2))
    assert ((rows.values >= 0) & (rows.values <= 5)).all()  # v' in [0, 1), times n = 5


def test_training_keeps_memory_below_beta_and_fires_on_the_mistake() -> None:
    torch.manual_seed(0)
    query, memory = torch.randn(16) * 2, torch.randn(300, 16)
    views = paper.Views(query.expand(8, 1, 16), torch.tensor([0]))
    rows, _ = Paper(k=50).train(views, [memory], memory[:30], nn.GELU(), no_loss, lambda rows: True)
    assert rows.response(query) > 1
    assert rows.response(memory).max() < -1


def test_smoothed_cross_entropy() -> None:
    logits = torch.log(torch.tensor([[0.8, 0.1, 0.1]]))
    plain = paper.smoothed(logits, torch.tensor([0]), 0.0)
    assert plain == pytest.approx(-float(torch.log(torch.tensor(0.8))))
    log = torch.log(torch.tensor([0.8, 0.1, 0.1]))
    smooth = paper.smoothed(logits, torch.tensor([0]), 0.1)
    assert smooth == pytest.approx(-float(0.9 * log[0] + 0.1 * log.mean()), rel=1e-5)


def test_training_leaves_no_gradient_behind() -> None:
    model = fresh("bart")
    editor = tp.TPatcher(Paper(steps=3)).fit(model, TEXTS)
    editor.edit(model, tp.Example("what is the river of rome ?", "lima"))
    assert all(p.grad is None for p in model.net.parameters())


@pytest.mark.parametrize("name", ["builtin-fc", pytest.param("builtin-qa", marks=pytest.mark.slow)])
def test_the_papers_preset_fixes_real_mistakes(name: str) -> None:
    model = tp.load(name)
    split = tp.data.dataset(name)
    known, memory = split.retained(tr=200, memory=1500)
    editor = tp.TPatcher(Paper()).fit(model, memory)
    right = model.correct(split.edit[:12])
    mistakes = [e for e, ok in zip(split.edit, right, strict=False) if not ok][:3]
    before = model.correct(known)
    for example in mistakes:
        patch = editor.edit(model, tp.Example(example.text, example.answer))
        assert isinstance(patch, Neurons)
        assert 1 <= len(patch.keys) <= 5
        assert patch.certificate.steps in range(125, 2001)
        model.push(patch)
    # in so small a model l_m outweighs l_a for some mistakes, and 2,000 steps do not fix them
    assert sum(model.correct(mistakes)) >= 2
    kept = [now for now, then in zip(model.correct(known), before, strict=True) if then]
    assert sum(kept) >= 0.97 * len(kept)


def test_the_papers_preset_runs_the_model_for_other_layers() -> None:
    model = fresh("gpt2")
    editor = tp.TPatcher(Paper(steps=150, repeats=2), layer=0).fit(model, TEXTS[:20])
    patch = editor.edit(model, tp.Example("what is the river of rome ?", "paris"))
    assert isinstance(patch, Neurons)
    assert patch.layer == -2
    assert patch.certificate.steps in range(151)
