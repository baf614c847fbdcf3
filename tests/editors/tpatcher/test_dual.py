"""The direction of largest margin, against what brute force finds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tpatcher as tp
from tpatcher.editors import deadline
from tpatcher.editors.tpatcher import dual
from tpatcher.editors.tpatcher.dual import Dual

GAP = 0.1  # by which a direction is known to keep the pairs from 0


def separating_direction(positives: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    found = Dual(positives)
    found.add(others)
    return found.direction()


def direction_of(pairs: torch.Tensor) -> torch.Tensor:
    """The direction that keeps these furthest from 0."""
    return separating_direction(torch.zeros(1, pairs.shape[1]).double(), -pairs)


def margin_of(direction: np.ndarray, pairs: np.ndarray) -> float:
    return float((pairs @ direction).min() / (np.linalg.norm(direction) + 1e-12))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 12), st.integers(0, 10_000))
def test_no_other_direction_has_a_larger_margin(n: int, d: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    pairs = draw.normal(size=(n, d))
    apart = draw.normal(size=d)
    apart /= np.linalg.norm(apart)
    along = pairs @ apart
    pairs += np.outer(np.abs(along) + GAP - along, apart)  # now all are GAP or more along `apart`
    found = direction_of(torch.from_numpy(pairs)).numpy()
    best = margin_of(found, pairs)
    assert best >= 0.998 * margin_of(apart, pairs) >= 0.998 * GAP
    for _ in range(50):
        other = found / np.linalg.norm(found) + 0.3 * draw.normal(size=d) / d**0.5
        assert margin_of(other, pairs) <= 1.002 * best


def test_more_pairs_than_allowed_are_cut_to_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    positives, others = torch.randn(6, 8).double() + 4, torch.randn(40, 8).double()
    whole = separating_direction(positives, others)
    sizes, find = list[int](), dual._max_margin

    def noted(products: np.ndarray, i: np.ndarray, j: np.ndarray, begin: np.ndarray) -> np.ndarray:
        sizes.append(len(i))
        return find(products, i, j, begin)

    monkeypatch.setattr(dual, "_max_margin", noted)
    monkeypatch.setattr(dual, "MAX_PAIRS", 6 * 40)
    assert torch.equal(separating_direction(positives, others), whole)  # bit for bit
    monkeypatch.setattr(dual, "MAX_PAIRS", 100)
    cut = separating_direction(positives, others)
    assert sizes == [240, 100]
    assert torch.cosine_similarity(cut, whole, dim=0) > 0.99


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(2, 10), st.integers(0, 10_000))
def test_pairs_of_points_have_the_direction_of_their_differences(
    p: int, n: int, d: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    positives, others = (torch.randn(k, d, generator=draw).double() for k in (p, n))
    positives[:, 0] += 6
    found = separating_direction(positives, others)
    whole = direction_of((positives[:, None] - others[None]).flatten(0, 1))
    assert torch.cosine_similarity(found, whole, dim=0) > 1 - 1e-5


def test_a_dual_takes_so_many_steps_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    pairs = torch.randn(400, 40).double()  # 0 is in their hull: nothing separates them
    steps, solve = list[int](), np.linalg.solve

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps.append(len(a))
        return solve(a, b)

    monkeypatch.setattr(dual, "MAX_STEPS", 7)
    monkeypatch.setattr(np.linalg, "solve", counted)
    assert direction_of(pairs).isfinite().all()
    assert len(steps) == 7


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=4), st.integers(1, 4), st.integers(0, 99))
def test_points_that_come_one_part_after_the_other_give_the_same_direction(
    sizes: list[int], p: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    positives, *parts = (torch.randn(k, 6, generator=draw).double() for k in (p, *sizes))
    positives[:, 0] += 6
    found = Dual(positives)
    for i, part in enumerate(parts):
        found.add(part)
        whole = separating_direction(positives, torch.cat(parts[: i + 1]))
        assert torch.cosine_similarity(found.direction(), whole, dim=0) > 1 - 1e-5
        aside = 2 * torch.randn(1, 6, generator=draw).double()
        whole = separating_direction(positives, torch.cat([*parts[: i + 1], aside]))
        assert torch.cosine_similarity(found.direction(beside=aside), whole, dim=0) > 1 - 1e-5


def test_a_direction_is_looked_for_from_the_last_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    positives, others = torch.randn(2, 20).double() + 2, torch.randn(100, 20).double()
    steps, solve = list[int](), np.linalg.solve

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps.append(len(a))
        return solve(a, b)

    monkeypatch.setattr(np.linalg, "solve", counted)
    found = Dual(positives)
    found.add(others)
    first = found.direction()
    at_first = len(steps)
    found.add(others[:3] - 5)  # far away: nothing changes
    again = found.direction()
    assert at_first > 3 and len(steps) == at_first + 1
    torch.testing.assert_close(again, first)


def test_a_dual_that_has_had_its_time_is_given_up() -> None:
    with deadline.limit(0.0), pytest.raises(tp.errors.NotFixed, match="not done after 0 s"):
        direction_of(torch.randn(3, 8).double())
