"""Claims: strict, and counted once each, the paper's apart from our own."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import made_up
from tpatcher.bench import claims, rows
from tpatcher.bench.claims import Claim
from tpatcher.bench.experiments import TABLES
from tpatcher.bench.results import ResultRow
from tpatcher.bench.rows import Row
from tpatcher.bench.scale import SMALL
from tpatcher.bench.setup import builtin_setups
from tpatcher.bench.table import plan
from tpatcher.bench.tally import tally

SAME = {"SR": 1.0, "GR": 0.9, "ER": 0.9, "TrainR": 0.9, "TestR": 0.9, "Edit": 1.0, "E": 9, "N": 9}


class Known(ResultRow):
    """A row whose numbers are given, of two folders if not otherwise said."""

    def __init__(
        self, row: Row, numbers: dict[str, float], complete: int = 2, expected: int = 2
    ) -> None:
        super().__init__(row, [None] * complete, expected)  # type: ignore[list-item]
        self.__dict__["numbers"] = {name: (value, value) for name, value in numbers.items()}


def verdict(claim: Claim, **changes: dict[str, float]) -> bool | None:
    """What a claim comes to where all rows are the same but for some numbers."""
    assert not isinstance(claim.about, str)
    found = [Known(r, SAME | changes.get(r.name.replace("-", "_"), {})) for r in claim.about]
    return claim.verdict(found).holds


@pytest.mark.parametrize(
    "claim", [c for c in (*claims.TABLE1, *claims.WHOLE_STREAM, *claims.TABLE3, *claims.TABLE5)
              if not isinstance(c.about, str) and len(c.about) > 1], ids=lambda c: c.text,
)  # fmt: skip
def test_where_all_are_the_same_nobody_has_more(claim: Claim) -> None:
    bar = "forgets past edits" in claim.text  # a bar that each row meets by itself
    assert verdict(claim) is bar


def test_nothing_is_said_of_some_of_the_folders() -> None:
    [bar] = [c for c in claims.TABLE1 if c.about == (rows.T_PATCHER,)]
    good = SAME | {"ER": 1.0, "TrainR": 1.0, "TestR": 1.0}
    for complete, holds in ((2, True), (1, None), (0, None)):
        assert bar.verdict([Known(rows.T_PATCHER, good, complete)]).holds is holds


def test_one_folder_has_no_deviation() -> None:
    [least] = claims.TABLE5
    assert not isinstance(least.about, str)
    numbers = dict.fromkeys(("ER", "TrainR", "TestR"), 0.1)
    better = dict.fromkeys(numbers, 0.01)
    for folders, holds in ((2, True), (1, None)):
        made = [
            Known(r, better if r == rows.T_PATCHER else numbers, folders, folders)
            for r in least.about
        ]
        assert least.verdict(made).holds is holds


def test_what_was_not_measured_is_not_judged() -> None:
    [bar] = [c for c in claims.TABLE1 if c.about == (rows.T_PATCHER,)]
    found = bar.verdict([Known(rows.T_PATCHER, {m: 1.0 for m in SAME if m != "GR"})])
    assert (found.holds, found.numbers) == (None, "GR was not measured")


def test_as_many_edits_as_mistakes_are_not_more() -> None:
    [more] = [c for c in claims.WHOLE_STREAM if c.text.startswith("SERA makes more")]
    assert verdict(more) is False
    assert verdict(more, sera={"E": 10}) is True


def test_kl_in_part_means_less_than_the_memory_loss() -> None:
    [part] = [c for c in claims.TABLE3 if "only in part" in c.text]
    low, high = {"TrainR": 0.5}, {"TrainR": 0.99}
    assert verdict(part, without_lm=low, t_patcher=high) is True
    assert verdict(part, without_lm=low) is False, "as good as T-Patcher is not in part"


def test_what_is_not_the_papers_is_counted_apart_and_nothing_twice(tmp_path: Path) -> None:
    chosen = [TABLES[name] for name in ("table1", "table2", "table7")]
    planned = plan(chosen, builtin_setups(), SMALL)
    made_up.write(planned, tmp_path)
    tables = [one.read(tmp_path) for one in planned]
    paper, own = tally(tables)
    placed = [*paper.failed, *paper.held, *paper.unknown]
    assert len(placed) == 2 * sum(c.of_paper for c in (*claims.TABLE1, *claims.WHOLE_STREAM))
    assert {v.text for _, v in placed}.isdisjoint(v.text for _, v in (*own.held, *own.failed))
    assert own.summary.startswith("Claims of our own: ")
    [first, *_] = tables
    broken = [r if r.row != rows.MEND else replace(r, results=[]) for r in first.rows]
    [again, _] = tally([replace(first, rows=broken)])
    assert len(again.unknown) == 1 and "1 lack jobs" in again.summary
    assert [line[0] for line in paper.lines] == ["C", *"✗" * len(paper.failed)]
