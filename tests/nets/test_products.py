"""A few vectors times many rows, by whichever product is quickest for as many as there are."""

import pytest
import torch
from torch import nn

from tests.helpers import fresh
from tpatcher.nets.products import BLOCK, IN_CACHE, FewRows, products, quickened, some_of
from tpatcher.nets.twin import twin


@pytest.mark.parametrize("n", [0, 1, 2, 6, 7, 97])
@pytest.mark.parametrize("count", [5, 2 * IN_CACHE + 7, 3 * IN_CACHE + 1, 2 * BLOCK + 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_number_of_keys_has_the_same_responses(
    n: int, count: int, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(n)
    rows = torch.randn(count, 8, generator=draw).to(dtype)
    keys = torch.randn(n, 8, generator=draw)
    wanted = keys.double() @ rows.double().T
    for step in (1, 2, 3):
        found, some = products(keys, rows, step), some_of(count, step)
        assert found.shape == (n, len(some))
        torch.testing.assert_close(found.double(), wanted[:, some], rtol=1e-4, atol=1e-4)


def test_some_of_the_rows_are_a_fair_part_of_all() -> None:
    rows = some_of(10 * BLOCK, 2)
    assert len(rows) == 5 * BLOCK
    assert abs(rows.double().mean() - 4.5 * BLOCK) < BLOCK


def test_a_key_beside_others_responds_as_alone() -> None:
    rows, keys = torch.randn(100, 8), torch.randn(4, 8)
    torch.testing.assert_close(products(keys, rows)[2:3], products(keys[2:3], rows))


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2", "llama", "t5"])
def test_a_quickened_net_says_the_same_and_the_stock_one_stays(name: str) -> None:
    model = fresh(name)
    inputs = dict(model.task.force(["the capital of peru"], model.task.dummy_targets(1)).inputs)
    stock = [module for module in model.net.modules() if type(module) is nn.Linear]
    quick = quickened(twin(model.net))
    with torch.no_grad():
        torch.testing.assert_close(
            quick(**inputs).logits, model.net(**inputs).logits, rtol=1e-4, atol=1e-4
        )
    assert [module for module in model.net.modules() if type(module) is nn.Linear] == stock
    assert quick.state_dict().keys() == model.net.state_dict().keys()
    assert bool(stock) == any(isinstance(module, FewRows) for module in quick.modules())


def test_a_matrix_that_somebody_watches_stays_as_it_is() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    net[1].register_forward_hook(lambda module, args, output: output + 1)
    assert [type(module) for module in quickened(net)] == [FewRows, nn.Linear]
