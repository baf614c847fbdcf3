"""Max-margin keys and values, against what brute force finds."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tpatcher as tp
from tpatcher.editors import deadline
from tpatcher.editors.tpatcher import keys

GAP = 0.1  # by which a direction is known to keep the pairs from 0


def direction_of(pairs: torch.Tensor) -> torch.Tensor:
    """The direction that keeps these furthest from 0."""
    return keys.separating_direction(torch.zeros(1, pairs.shape[1]).double(), -pairs)


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


def negatives(memory: tp.Memory, target: int, extra: torch.Tensor) -> keys.Negatives:
    return keys.Negatives(
        memory=memory,
        target=torch.tensor([target]),
        is_mistake=torch.empty(0, dtype=torch.long),
        extra=extra,
        extra_answers=torch.full((len(extra),), -1),
    )


def test_a_key_keeps_away_from_everything_that_could_be_hurt() -> None:
    torch.manual_seed(1)
    queries, mistake = torch.randn(2000, 24), torch.randn(1, 24) * 1.3
    memory = tp.Memory.from_queries(queries, torch.zeros(2000, dtype=torch.long))
    past = torch.randn(5, 24)
    (key,) = keys.solve([mistake], negatives(memory, 1, past))
    others = torch.cat([queries, past]) @ key.direction
    assert key.response > others.max()
    assert abs(key.nearest_negative - float(others.max())) < 1e-4
    plain = memory.key(memory.whiten(mistake))[0].float()
    plain = plain / plain.norm()
    spread = memory.whiten(queries)

    def gap(k: torch.Tensor) -> float:  # in whitened units, which is what is maximised
        response = spread @ (memory.factor.T @ k.double())
        own = memory.whiten(mistake) @ (memory.factor.T @ k.double())
        return float((own - response.max()) / (memory.factor.T @ k.double()).norm())

    assert gap(key.direction) > gap(plain)


def test_a_mistake_that_has_a_double_gets_no_gap() -> None:
    torch.manual_seed(3)
    queries, mistake = torch.randn(200, 8), torch.randn(1, 8) * 3
    for double in (torch.cat([mistake, torch.randn(2, 8)]), mistake):
        memory = tp.Memory.from_queries(queries, torch.zeros(200, dtype=torch.long))
        (key,) = keys.solve([mistake], negatives(memory, 1, double))
        assert key.direction.isfinite().all()
        assert (
            abs(key.response - key.nearest_negative) < 1e-5 * (1 + abs(key.response))
            or key.response < key.nearest_negative
        )
        assert 200 in key.nearest


def test_what_already_gives_the_target_may_fire() -> None:
    torch.manual_seed(2)
    queries = torch.randn(500, 8)
    mistake = queries[:1] + 0.01  # hidden in the crowd: inseparable, were it not for the answers
    answers = torch.ones(500, dtype=torch.long)
    answers[250:] = 0
    memory = tp.Memory.from_queries(queries, answers)
    (key,) = keys.solve([mistake], negatives(memory, 1, torch.empty(0, 8)))
    # a product of another shape may be summed in another order
    assert key.nearest_negative == pytest.approx(
        float((queries[250:] @ key.direction).max()), rel=1e-5
    )


def test_more_pairs_than_allowed_are_cut_to_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    positives, others = torch.randn(6, 8).double() + 4, torch.randn(40, 8).double()
    whole = keys.separating_direction(positives, others)
    sizes, find = list[int](), keys._max_margin

    def noted(products: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        sizes.append(len(i))
        return find(products, i, j)

    monkeypatch.setattr(keys, "_max_margin", noted)
    monkeypatch.setattr(keys, "MAX_PAIRS", 6 * 40)
    assert torch.equal(keys.separating_direction(positives, others), whole)  # bit for bit
    monkeypatch.setattr(keys, "MAX_PAIRS", 100)
    cut = keys.separating_direction(positives, others)
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
    found = keys.separating_direction(positives, others)
    whole = direction_of((positives[:, None] - others[None]).flatten(0, 1))
    assert torch.cosine_similarity(found, whole, dim=0) > 1 - 1e-5


def test_a_dual_takes_so_many_steps_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    pairs = torch.randn(400, 40).double()  # 0 is in their hull: nothing separates them
    steps, solve = list[int](), np.linalg.solve

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps.append(len(a))
        return solve(a, b)

    monkeypatch.setattr(keys, "MAX_STEPS", 7)
    monkeypatch.setattr(np.linalg, "solve", counted)
    assert direction_of(pairs).isfinite().all()
    assert len(steps) == 7


def test_an_edit_that_has_had_its_time_is_given_up() -> None:
    torch.manual_seed(6)
    memory = tp.Memory.from_queries(torch.randn(50, 8), torch.zeros(50, dtype=torch.long))
    mistake = [torch.randn(1, 8) * 3]
    apart = negatives(memory, 1, torch.empty(0, 8))
    with deadline.limit(0.0), pytest.raises(tp.errors.NotFixed, match="not done after 0 s"):
        keys.solve(mistake, apart)
    with deadline.limit(0.0), pytest.raises(tp.errors.NotFixed, match="not done after 0 s"):
        direction_of(torch.randn(3, 8).double())
    stop = threading.Event()
    with deadline.limit(None, stop):
        assert keys.solve(mistake, apart)
        stop.set()
        with pytest.raises(tp.errors.NotFixed, match="stopped"):
            keys.solve(mistake, apart)
    assert keys.solve(mistake, apart)  # outside of any limit
