"""The paper's formulas, against numbers worked out by hand."""

from math import e, exp

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from tests import zoo
from tpatcher.editors.tpatcher import paper as solver
from tpatcher.nets import ffn
from tpatcher.nets.activation import thresholds


def test_s_is_the_mean_of_the_k_largest_exponentials() -> None:
    v = torch.tensor([[0.0, 1.0], [-1.0, 2.0]])
    assert solver.S(v, 2) == pytest.approx((exp(2) + e) / 2, rel=1e-6)
    assert solver.S(v, 100) == pytest.approx((1 + e + exp(-1) + exp(2)) / 4, rel=1e-6)


def test_activation_loss() -> None:
    assert solver.l_a(torch.tensor([2.0])) == pytest.approx(exp(-2))
    # of several patches, the k_a least activated count: exp(0), exp(-1)
    assert solver.l_a(torch.tensor([1.0, 0.0, 5.0]), k_a=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_memory_below_beta() -> None:
    memory = torch.tensor([[-3.0], [-4.0], [-9.0]])
    assert solver.l_m1(memory, beta=-3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_the_mistake_above_memory_by_gamma() -> None:
    memory, own = torch.tensor([[-3.0, 0.0]]), torch.tensor([1.0, 3.0])
    # differences -4 and -3, plus γ = 3: exp(-1) and exp(0)
    assert solver.l_m2(memory, own, gamma=3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_is_the_sum_of_both() -> None:
    response, own = torch.tensor([[-3.0]]), torch.tensor([3.0])
    both = solver.memory_loss(response, own, -3.0, 3.0, solver.Schedule())
    assert both == pytest.approx(1 + exp(-3))  # l_m1 = exp(0), l_m2 = exp(-3 - 3 + 3)
    one = solver.memory_loss(response, own, -3.0, 3.0, solver.Schedule(use_lm2=False))
    assert one == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "beta"), [("gelu", -3.0), ("relu", 0.0), ("gelu_new", -3.0)])
def test_beta_and_gamma_of_the_paper(name: str, beta: float) -> None:
    assert thresholds(ACT2FN[name]) == (beta, -beta)


def test_beta_of_silu_is_where_it_has_gone_flat() -> None:
    beta, gamma = thresholds(nn.SiLU())
    assert -7.6 < beta < -6.5
    assert gamma == -beta
    assert abs(nn.SiLU()(torch.tensor(beta - 0.01))) < 0.005


def test_a_widened_ffn_is_the_ffn_plus_the_patches() -> None:
    """Widened ∘ Act ∘ Narrowed = FFN(q) + Act(q·K + b)·V (Eq. 8)."""
    torch.manual_seed(0)
    first, second, act = nn.Linear(8, 16), nn.Linear(16, 8), nn.GELU()
    keys, bias, values = torch.randn(3, 8), torch.randn(3), torch.randn(3, 8)
    q = torch.randn(2, 5, 8)
    wide = ffn.Narrowed(second, values)(act(ffn.Widened(first, keys, bias, False)(q)))
    torch.testing.assert_close(wide, second(act(first(q))) + act(q @ keys.T + bias) @ values)


def test_the_initial_key_activates_with_one() -> None:
    """q/|q|² responds with 1 to q: after no step of training, key and bias are just that."""
    torch.manual_seed(0)
    queries = torch.randn(1, 2, 8).expand(4, 2, 8)
    views = solver.Views(queries, torch.tensor([0, 1]))
    keys, bias, values, steps = solver.train(
        views, [torch.randn(5, 8)], torch.randn(5, 8), nn.GELU(), None, None, None,  # type: ignore[arg-type]
        solver.Schedule(steps=0), seed=0,
    )  # fmt: skip
    assert steps == 0
    torch.testing.assert_close((queries[0] * keys).sum(-1) + bias, torch.ones(2))
    assert ((values >= 0) & (values <= 5)).all()  # v' in [0, 1), times n = 5


def test_training_keeps_memory_below_beta_and_fires_on_the_mistake() -> None:
    torch.manual_seed(0)
    query, memory = torch.randn(16) * 2, torch.randn(300, 16)
    views = solver.Views(query.expand(8, 1, 16), torch.tensor([0]))
    keys, bias, _, _ = solver.train(
        views, [memory], memory[:30], nn.GELU(), lambda *_: torch.zeros(()), lambda *_: True, None,
        solver.Schedule(k=50), seed=0,
    )  # fmt: skip
    assert query @ keys[0] + bias > 1
    assert (memory @ keys.T + bias).max() < -1


def test_smoothed_cross_entropy() -> None:
    logits = torch.log(torch.tensor([[0.8, 0.1, 0.1]]))
    plain = solver.smoothed(logits, torch.tensor([0]), 0.0)
    assert plain == pytest.approx(-float(torch.log(torch.tensor(0.8))))
    log = torch.log(torch.tensor([0.8, 0.1, 0.1]))
    smooth = solver.smoothed(logits, torch.tensor([0]), 0.1)
    assert smooth == pytest.approx(-float(0.9 * log[0] + 0.1 * log.mean()), rel=1e-5)


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_values_of_zero_change_nothing(name: str) -> None:
    """Only to within rounding while worn: a wider matrix moves elements between the body and the
    tail of a vector, where SiLU and GeLU may round differently. Bit for bit once it is off."""
    net = zoo.net(name)
    place = ffn.find(net)
    ids = torch.arange(4, 12)[None]
    more = {"decoder_input_ids": ids} if net.config.is_encoder_decoder else {}
    with torch.no_grad():
        before = net(input_ids=ids, **more).logits
        place.widen(net, torch.randn(3, place.width), torch.zeros(3), torch.zeros(3, place.width))
        torch.testing.assert_close(net(input_ids=ids, **more).logits, before)
        place.bare(net)
        assert torch.equal(net(input_ids=ids, **more).logits, before)
