"""Parts of a dataset are disjoint, cover it, and have the paper's sizes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpatcher.data.split import Split, by_ratio
from tpatcher.errors import BadInput
from tpatcher.example import Example

SEEDS = st.integers(0, 9)


def examples(n: int) -> list[Example]:
    """Distinct examples."""
    return [Example(str(i), "yes") for i in range(n)]


def test_fever_has_the_papers_edit_set() -> None:
    train, val, edit = by_ratio(range(104_966), (0.8, 0.1, 0.1))
    assert (len(train), len(val), len(edit)) == (83_974, 10_496, 10_496)


@given(st.integers(40, 400), SEEDS, st.sampled_from([(0.8, 0.1, 0.1), (0.9, 0.075, 0.025)]))
def test_parts_are_disjoint_and_cover(
    n: int, seed: int, ratios: tuple[float, float, float]
) -> None:
    parts = by_ratio(range(n), ratios, seed)
    assert sorted(row for part in parts for row in part) == list(range(n))
    assert parts == by_ratio(range(n), ratios, seed)


@given(st.integers(1, 99))
def test_a_ratio_of_a_multiple_is_exact(n: int) -> None:
    train, val, edit = by_ratio(range(40 * n), (0.9, 0.075, 0.025))
    assert (len(train), len(val), len(edit)) == (36 * n, 3 * n, n)


def test_other_seeds_give_other_parts() -> None:
    assert by_ratio(range(100), (0.8, 0.1, 0.1), 0) != by_ratio(range(100), (0.8, 0.1, 0.1), 1)


def test_too_few_rows_for_an_edit_set_are_an_error() -> None:
    with pytest.raises(
        BadInput, match=r"9 rows are too few: an edit set of 10\.0% of them would be empty"
    ):
        by_ratio(range(9), (0.8, 0.1, 0.1))


def test_the_paper_retains_10_000_and_remembers_40_000() -> None:
    tr, memory = Split(examples(60_000), [], []).retained()
    assert (len(tr), len(memory)) == (10_000, 40_000)
    assert not {e.text for e in tr} & {e.text for e in memory}


@given(st.integers(0, 60), st.integers(0, 40), st.integers(0, 40), SEEDS)
def test_retained_and_memory_never_meet(n: int, tr: int, memory: int, seed: int) -> None:
    split = Split(examples(n), [], [])
    both = split.retained(tr, memory, seed)
    counts = Counter(e.text for part in both for e in part)
    assert all(count == 1 for count in counts.values())
    assert counts.total() == min(n, tr + memory)
    assert len(both[0]) <= tr
    assert len(both[1]) <= memory


@given(st.integers(0, 90), st.integers(1, 20), SEEDS)
def test_folders_share_out_the_edit_set_evenly(n: int, folders: int, seed: int) -> None:
    parts = Split([], examples(n), []).folders(folders, seed)
    assert sorted(int(e.text) for part in parts for e in part) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
