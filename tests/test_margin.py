"""Max-margin keys and values, against what brute force finds."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tpatcher as tp
from tpatcher.editors.tpatcher import keys as margin


def margin_of(direction: np.ndarray, pairs: np.ndarray) -> float:
    return float((pairs @ direction).min() / (np.linalg.norm(direction) + 1e-12))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 12), st.integers(0, 10_000))
def test_no_other_direction_has_a_larger_margin(n: int, d: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    pairs = draw.normal(size=(n, d)) + 2.5 * draw.normal(size=d)
    found = margin.widest(torch.from_numpy(pairs)).numpy()
    best = margin_of(found, pairs)
    if best <= 1e-3:  # 0 is inside the hull: there is no half-space
        return
    for _ in range(50):
        other = found / np.linalg.norm(found) + 0.3 * draw.normal(size=d) / d**0.5
        assert margin_of(other, pairs) <= best + 1e-3 * (1 + abs(best))


def crowd(memory: tp.Memory, target: int, more: torch.Tensor) -> margin.Crowd:
    return margin.Crowd(
        memory=memory, target=torch.tensor([target]), skip=torch.empty(0, dtype=torch.long),
        more=more, more_answers=torch.full((len(more),), -1),
    )  # fmt: skip


def test_a_key_keeps_away_from_everything_that_could_be_hurt() -> None:
    torch.manual_seed(1)
    queries, mistake = torch.randn(2000, 24), torch.randn(1, 24) * 1.3
    memory = tp.Memory.from_queries(queries, torch.zeros(2000, dtype=torch.long))
    past = torch.randn(5, 24)
    (key,) = margin.keys([mistake], crowd(memory, 1, past))
    others = torch.cat([queries, past]) @ key.key
    assert key.own > others.max()
    assert abs(key.top - float(others.max())) < 1e-4
    plain = memory.key(memory.whiten(mistake))[0].float()
    plain = plain / plain.norm()
    spread = memory.whiten(queries)

    def gap(k: torch.Tensor) -> float:  # in whitened units, which is what is maximised
        response = spread @ (memory.factor.T @ k.double())
        own = memory.whiten(mistake) @ (memory.factor.T @ k.double())
        return float((own - response.max()) / (memory.factor.T @ k.double()).norm())

    assert gap(key.key) > gap(plain)


def test_a_mistake_that_has_a_double_gets_no_gap() -> None:
    torch.manual_seed(3)
    queries, mistake = torch.randn(200, 8), torch.randn(1, 8) * 3
    for double in (torch.cat([mistake, torch.randn(2, 8)]), mistake):
        memory = tp.Memory.from_queries(queries, torch.zeros(200, dtype=torch.long))
        (key,) = margin.keys([mistake], crowd(memory, 1, double))
        assert key.key.isfinite().all()
        assert abs(key.own - key.top) < 1e-5 * (1 + abs(key.own)) or key.own < key.top
        assert 200 in key.nearest


def test_what_already_gives_the_target_may_fire() -> None:
    torch.manual_seed(2)
    queries = torch.randn(500, 8)
    mistake = queries[:1] + 0.01  # hidden in the crowd: inseparable, were it not for the answers
    answers = torch.ones(500, dtype=torch.long)
    answers[250:] = 0
    memory = tp.Memory.from_queries(queries, answers)
    (key,) = margin.keys([mistake], crowd(memory, 1, torch.empty(0, 8)))
    assert key.top == float((queries[250:] @ key.key).max())
