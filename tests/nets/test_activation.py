"""Below which response an activation counts as silent (β), and γ."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from tpatcher.nets.activation import thresholds


@pytest.mark.parametrize(("name", "beta"), [("gelu", -3.0), ("relu", 0.0), ("gelu_new", -3.0)])
def test_beta_and_gamma_of_the_paper(name: str, beta: float) -> None:
    assert thresholds(ACT2FN[name]) == (beta, -beta)


def test_beta_of_silu_is_where_it_has_gone_flat() -> None:
    beta, gamma = thresholds(nn.SiLU())
    assert -7.6 < beta < -6.5
    assert gamma == -beta
    assert abs(nn.SiLU()(torch.tensor(beta - 0.01))) < 0.005
