"""Draws that are the same every time, and are nobody else's."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tpatcher.nets.seeded import seeded


def test_the_same_draws_and_the_programs_own_go_on() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(2)
    torch.manual_seed(5)
    with seeded(0, torch.device("cpu")):
        one = torch.rand(3)
    with seeded(0, torch.device("cpu")):
        assert torch.equal(torch.rand(3), one)
    assert torch.equal(torch.rand(2), wanted)


def test_of_all_gpus_only_the_models_own_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fork(devices: Any) -> Any:
        asked.append(devices)
        return nullcontext()

    monkeypatch.setattr(torch.random, "fork_rng", fork)
    for name in ("cuda:1", "cpu"):
        with seeded(0, torch.device(name)):
            pass
    assert asked == [[torch.device("cuda:1")], []]
    package = Path(tp.__file__).parent
    found = [p.name for p in package.rglob("*.py") if "fork_rng" in p.read_text()]
    assert found == ["seeded.py"], "use seeded: without a device torch begins to use every GPU"
