"""What a stretch of work takes at its peak."""

from pathlib import Path

import pytest
import torch

from tpatcher import peak_memory as peak

HERE = torch.device("cpu")


@pytest.mark.skipif(not peak.RESET.exists(), reason="only Linux counts it")
def test_a_peak_counts_what_was_given_back_too() -> None:
    stop = peak.watch(HERE)
    large = torch.ones(64 << 20, dtype=torch.uint8)
    del large
    first = stop()
    again = peak.watch(HERE)()
    assert first is not None and again is not None
    assert first >= 60 << 20
    assert again < first / 2


def test_where_nobody_counts_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peak, "RESET", tmp_path / "none" / "at all")
    assert peak.watch(HERE)() is None
