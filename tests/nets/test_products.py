"""Keys times the memory, by whichever product is quickest for as many keys as there are."""

import pytest
import torch

from tpatcher.nets.products import IN_CACHE, products


@pytest.mark.parametrize("n", [0, 1, 2, 5, 97])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_number_of_keys_has_the_same_responses(n: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(n)
    rows = torch.randn(2 * IN_CACHE + 7, 24, generator=draw).to(dtype)
    keys = torch.randn(n, 24, generator=draw)
    found = products(keys, rows)
    assert found.shape == (n, len(rows)) and found.is_contiguous()
    torch.testing.assert_close(
        found.double(), keys.double() @ rows.double().T, rtol=1e-4, atol=1e-4
    )


def test_a_key_beside_others_responds_as_alone() -> None:
    rows, keys = torch.randn(100, 8), torch.randn(4, 8)
    torch.testing.assert_close(products(keys, rows)[2:3], products(keys[2:3], rows))
