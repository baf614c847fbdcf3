"""Max-margin keys, against what is known of the half-space."""

import threading
from dataclasses import replace

import pytest
import torch

import tpatcher as tp
from tpatcher.editors import deadline
from tpatcher.editors.tpatcher import keys
from tpatcher.nets.products import some_of


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


def test_a_first_look_at_a_part_of_the_memory_changes_no_guarantee() -> None:
    torch.manual_seed(4)
    memory = tp.Memory.from_queries(torch.randn(9999, 12), torch.arange(9999) % 3)
    apart = negatives(memory, 1, torch.empty(0, 12))
    directions = torch.randn(1, 12)
    (found,) = apart.nearest_of_some(directions, 20)
    assert len(found) == 20
    looked_at = some_of(9999, keys.SAMPLE)
    assert len(looked_at) < 9999
    response = (memory.queries @ directions[0])[looked_at].masked_fill(looked_at % 3 == 1, -9e9)
    assert set(found.tolist()) == set(looked_at[response.topk(20).indices].tolist())
    (key,) = keys.solve([torch.randn(1, 12) * 3], apart)
    at_risk = memory.queries[memory.answers != 1]  # type: ignore[operator]
    assert key.nearest_negative == pytest.approx(float((at_risk @ key.direction).max()), rel=1e-5)


def test_the_examples_other_positions_may_lie_nearer_than_others() -> None:
    """They are known exactly; the rest of the margin is kept for what is not."""
    torch.manual_seed(5)
    queries, mistake = torch.randn(2000, 24), torch.randn(1, 24) * 2
    memory = tp.Memory.from_queries(queries, torch.zeros(2000, dtype=torch.long))
    extra = torch.cat([torch.randn(4, 24), mistake + 0.4 * torch.randn(3, 24)])
    whole = negatives(memory, 1, extra)
    (far,) = keys.solve([mistake], whole)
    (near,) = keys.solve([mistake], replace(whole, own=range(4, 7), own_margin=0.25))

    def gap(key: keys.Key, others: torch.Tensor) -> float:  # in whitened units
        white = (memory.whiten(mistake) - memory.whiten(others)) @ memory.factor.T
        direction = key.direction.double()
        return float((white @ direction).min() / (memory.factor.T @ direction).norm())

    everyone = torch.cat([queries, extra[:4]])
    assert gap(near, everyone) > 1.2 * gap(far, everyone), "more room between the others"
    assert gap(near, extra[4:]) > 0.24 * gap(near, everyone), "and the share that was asked for"
    assert near.responses.shape == far.responses.shape
    assert torch.equal(near.responses[-3:], (extra @ near.direction)[-3:]), "as they really are"
    whole_margin = replace(whole, own=range(4, 7))
    assert torch.equal(keys.solve([mistake], whole_margin)[0].direction, far.direction)


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


def test_an_edit_that_has_had_its_time_is_given_up() -> None:
    torch.manual_seed(6)
    memory = tp.Memory.from_queries(torch.randn(50, 8), torch.zeros(50, dtype=torch.long))
    mistake = [torch.randn(1, 8) * 3]
    apart = negatives(memory, 1, torch.empty(0, 8))
    with deadline.limit(0.0), pytest.raises(tp.errors.NotFixed, match="not done after 0 s"):
        keys.solve(mistake, apart)
    stop = threading.Event()
    with deadline.limit(None, stop):
        assert keys.solve(mistake, apart)
        stop.set()
        with pytest.raises(tp.errors.NotFixed, match="stopped"):
            keys.solve(mistake, apart)
    assert keys.solve(mistake, apart)  # outside of any limit
