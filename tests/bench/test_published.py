"""What the paper printed."""

import pytest

from tpatcher.bench import published


def test_a_row_of_table_1_by_task() -> None:
    assert published.cells("table1", "fc", "ke") == {
        "SR": 0.14, "GR": 0.12, "ER": 0.28, "TrainR": 0.486, "TestR": 0.65,
    }  # fmt: skip
    assert published.cells("table1", "fc", "lora") == {}
    assert published.cells("costs", "qa", "t-patcher")["seconds"] == 18.9


def test_every_table_is_there_and_whole() -> None:
    for i in range(1, 8):
        table = published.numbers()[f"table{i}"]
        for kind in ("fc", "qa") if i != 2 else ("qa",):
            assert all(len(row) == len(table["columns"]) for row in table[kind].values())


@pytest.mark.parametrize("kind", ["fc", "qa"])
def test_tables_that_share_a_row_agree(kind: str) -> None:
    """Table 3 rounds the SR of T-Patcher on question answering, which a footnote of 1 gives."""
    first = published.cells("table1", kind, "t-patcher")
    assert published.cells("table3", kind, "t-patcher") == pytest.approx(first, abs=0.0014)
    if kind == "qa":
        for row in ("ft-all-kl", "sera", "t-patcher"):
            assert published.cells("table2", kind, row) == published.cells("table7", kind, row)


def test_deviations_of_table_4() -> None:
    found = {
        kind: published.cells("table4", kind, "kl-patch", deviations=True) for kind in ("fc", "qa")
    }
    assert {kind: row["Random"] for kind, row in found.items()} == {"fc": 0.2, "qa": 0.1}
