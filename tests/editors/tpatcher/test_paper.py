"""The paper's formulas, against numbers worked out by hand, and mistakes that they fix."""

from dataclasses import replace
from itertools import count
from math import e, exp
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

import tpatcher as tp
from tests.helpers import TEXTS, fresh, wrong_label
from tpatcher.editors import deadline
from tpatcher.editors.tpatcher import Paper, paper
from tpatcher.editors.tpatcher.dropout import Views
from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.nets.rows import Rows
from tpatcher.patches.neurons import Neurons


def no_loss(drawn: torch.Tensor | None, rows: Rows) -> torch.Tensor:
    return torch.zeros(())


def views_of(query: torch.Tensor, n: int = 8) -> Views:
    """A mistake (P, d), wrong everywhere, that dropout leaves as it is."""
    return Views(query, torch.arange(len(query)), query.expand(n, *query.shape))


KEYS = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def test_s_is_the_mean_of_the_k_largest_exponentials() -> None:
    v = torch.tensor([[0.0, 1.0], [-1.0, 2.0]])
    assert paper.S(v, 2) == pytest.approx((exp(2) + e) / 2, rel=1e-6)
    assert paper.S(v, 100) == pytest.approx((1 + e + exp(-1) + exp(2)) / 4, rel=1e-6)


def test_activation_loss() -> None:
    assert paper.l_a(torch.tensor([2.0])) == pytest.approx(exp(-2))
    # of several patches, the k_a least activated count: exp(0), exp(-1)
    assert paper.l_a(torch.tensor([1.0, 0.0, 5.0]), k_a=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_memory_below_beta() -> None:
    memory = torch.tensor([[-3.0], [-4.0], [-9.0]])
    assert paper.l_m1(memory, beta=-3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_asks_the_mistake_above_memory_by_gamma() -> None:
    memory, own = torch.tensor([[-3.0, 0.0]]), torch.tensor([1.0, 3.0])
    # differences -4 and -3, plus γ = 3: exp(-1) and exp(0)
    assert paper.l_m2(memory, own, gamma=3.0, k=2) == pytest.approx((1 + exp(-1)) / 2)


def test_memory_loss_is_the_sum_of_both() -> None:
    response, own = torch.tensor([[-3.0]]), torch.tensor([3.0])
    both = Paper().l_m(response, own, -3.0, 3.0, 1000)
    assert both == pytest.approx(1 + exp(-3))  # l_m1 = exp(0), l_m2 = exp(-3 - 3 + 3)
    one = Paper(use_lm2=False).l_m(response, own, -3.0, 3.0, 1000)
    assert one == pytest.approx(1.0)


def test_the_initial_key_activates_with_one_on_the_query_without_dropout() -> None:
    """q/|q|² responds with 1 to q: after no step of training, key and bias are just that."""
    torch.manual_seed(0)
    query = torch.randn(2, 8)
    views = replace(views_of(query), queries=query + torch.randn(4, 2, 8))
    some = [torch.randn(5, 8)]
    rows, steps = Paper(steps=0).train(views, some, some, nn.GELU(), no_loss, lambda rows: True)
    assert steps == 0
    torch.testing.assert_close(rows.response(query).diagonal(), torch.ones(2))
    assert ((rows.values >= 0) & (rows.values <= 5)).all()  # v' in [0, 1), times n = 5


def test_a_patch_of_a_model_with_dropout_begins_at_an_activation_of_one() -> None:
    model = fresh("bert")
    editor = tp.TPatcher(Paper(steps=0)).fit(model, TEXTS)
    patch = editor.edit(model, tp.Example(TEXTS[0], wrong_label(model, TEXTS[0])))
    assert isinstance(patch, Neurons)
    torch.testing.assert_close(patch.rows.response(patch.queries), torch.ones(1, 1))


def test_training_keeps_memory_below_beta_and_fires_on_the_mistake() -> None:
    torch.manual_seed(0)
    query, memory = torch.randn(1, 16) * 2, torch.randn(300, 16)
    losses = (0.9**check for check in count())  # always better, so the rate stays

    def l_e(drawn: torch.Tensor | None, rows: Rows) -> torch.Tensor:
        return torch.tensor(next(losses) if drawn is None else 0.0)

    rows, _ = Paper(k=50).train(
        views_of(query), [memory], [memory[:30]], nn.GELU(), l_e, lambda rows: True
    )
    assert rows.response(query) > 1
    assert rows.response(memory).max() < -1


@pytest.mark.parametrize("n", [1, 3])
def test_the_loss_of_the_nearest_queries_is_that_of_the_whole_memory(n: int) -> None:
    torch.manual_seed(n)
    parts, own = [torch.randn(200, 8), torch.randn(30, 8)], torch.randn(n)
    slopes: list[torch.Tensor] = []
    losses = []
    for some in (parts, [paper.nearest(parts, KEYS[:n], own, 20)]):
        keys = KEYS[:n].clone().requires_grad_()
        loss = Paper().l_m(torch.cat(some) @ keys.T + 0.1, own, -3.0, 3.0, 20)
        losses.append(loss.detach())
        slopes += torch.autograd.grad(loss, keys)
    assert len(some[0]) <= 40
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*slopes)


def trained(held_out: list[float], right: list[bool], **fields: Any) -> int:
    """The steps that training takes if its checks find these held-out losses and answers."""
    found, answers = iter(held_out), iter(right)

    class Scripted(Paper):
        def l_m(self, response: torch.Tensor, *rest: Any) -> torch.Tensor:
            if not response.requires_grad:  # the held-out part
                return torch.tensor(next(found))
            return super().l_m(response, *rest)

    torch.manual_seed(0)
    _, steps = Scripted(**fields).train(
        views_of(torch.randn(1, 8)),
        [torch.randn(50, 8)],
        [torch.randn(5, 8)],
        nn.GELU(),
        no_loss,
        lambda rows: next(answers),
    )
    return steps


def test_it_stops_at_a_right_check_that_is_no_better_than_the_best_right_one() -> None:
    assert trained([5.0, 5.0], [True, True]) == 125
    assert trained([5.0, 4.0, 3.9995], [True] * 3) == 150  # not 0.001 better than 4.0
    # a wrong check counts for nothing, however far away memory was then
    assert trained([5.0, 4.0, 4.0], [False, True, False, True, True]) == 200
    assert trained([], [False, True], use_lm1=False, use_lm2=False) == 125


def test_the_rate_halves_on_a_plateau_of_the_edit_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, seen = [], []

    class Watched(ReduceLROnPlateau):
        def step(self, metrics: Any, *rest: Any) -> None:  # type: ignore[override]
            super().step(metrics, *rest)
            seen.append(metrics)
            rates.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(paper, "ReduceLROnPlateau", Watched)
    losses = iter([10.0, 9.0, 8.9, 8.8, 8.0, 7.0])  # the third and fourth are not 5 % below 9

    def l_e(drawn: torch.Tensor | None, rows: Rows) -> torch.Tensor:
        return torch.tensor(next(losses) if drawn is None else 0.0)

    torch.manual_seed(0)
    some = [torch.randn(50, 8)]
    Paper(steps=150).train(
        views_of(torch.randn(1, 8)), some, some, nn.GELU(), l_e, lambda rows: False
    )
    assert seen == pytest.approx([10.0, 9.0, 8.9, 8.8, 8.0, 7.0])  # from the start, every 25 steps
    assert rates == [0.01, 0.01, 0.01, 0.005, 0.005, 0.005]


def test_the_whole_memory_is_trained_on_if_others_are_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []

    def train(self: Paper, views: Views, memory: Any, held_out: Any, *rest: Any) -> Any:
        sizes.append([sum(map(len, part)) for part in (memory, held_out)])
        return Rows(views.plain[:1], torch.zeros(1), torch.zeros(1, 32)), 0

    monkeypatch.setattr(Paper, "train", train)
    model = fresh("bert")
    mistake = tp.Example(TEXTS[0], wrong_label(model, TEXTS[0]))
    tp.TPatcher(Paper()).fit(model, TEXTS[:50]).edit(model, mistake)
    tp.TPatcher(Paper()).fit(model, TEXTS[:50], held_out=TEXTS[50:]).edit(model, mistake)
    assert sizes == [[45, 5], [50, 10]]


def test_the_memory_leaves_out_what_always_says_the_same() -> None:
    """<s> william shakespeare </s>, and <s> lima </s>, without <s>."""
    model = fresh("bart")
    known = [tp.Example("who wrote hamlet ?", "william shakespeare")]
    editor = tp.TPatcher(Paper()).fit(model, known, held_out=[tp.Example("a city", "lima")])
    assert editor.memory is not None and editor.memory.held_out is not None
    assert (len(editor.memory), len(editor.memory.held_out)) == (3, 2)
    whole = tp.Memory.collect(model, known)
    assert torch.equal(editor.memory.queries, whole.queries[1:])


def test_k_is_in_proportion_where_the_memory_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def seen(self: Paper, response: torch.Tensor, *rest: Any) -> torch.Tensor:
        used.append((len(response), rest[-1]))  # the k largest of the memory's responses, and k
        return response.sum()

    monkeypatch.setattr(Paper, "l_m", seen)
    for size in (400, 60_000):
        Paper(steps=1).train(
            views_of(torch.randn(1, 8)), [torch.randn(size, 8)], [], nn.GELU(), no_loss, bool
        )
    assert used == [(10, 10), (1000, 1000)]


def test_training_ends_at_the_deadline_of_an_edit() -> None:
    model = fresh("bert")
    editor = tp.TPatcher(Paper()).fit(model, TEXTS)
    example = tp.Example(TEXTS[0], wrong_label(model, TEXTS[0]))
    with deadline.limit(0.0), pytest.raises(tp.errors.NotFixed, match="not done after 0 s"):
        editor.edit(model, example)


def test_an_edit_is_the_same_each_time() -> None:
    model = fresh("bert")
    editor = tp.TPatcher(Paper(steps=30)).fit(model, TEXTS)
    mistake = tp.Example(TEXTS[0], wrong_label(model, TEXTS[0]))
    first = editor.edit(model, mistake)
    torch.rand(3)
    assert editor.edit(model, mistake).id == first.id


def test_the_certificate_says_if_the_patch_fixes() -> None:
    model = fresh("bert")
    mistake = tp.Example(TEXTS[0], wrong_label(model, TEXTS[0]))
    for steps, fixed in ((1, False), (400, True)):
        solver = Paper(steps=steps, use_lm1=False, use_lm2=False)
        patch = tp.TPatcher(solver).fit(model, TEXTS).edit(model, mistake)
        assert patch.certificate.fixed is fixed
        twin = model.twin()
        twin.push(patch)
        assert twin.correct([mistake]) == [fixed]


def test_an_answer_with_more_wrong_tokens_than_neurons_does_not_train_to_the_end() -> None:
    model = fresh("bart")
    example = tp.Example("what is the river of rome ?", "paris lima")
    with torch.no_grad():
        assert len(Mistake.find(model, example).wrong) > 1
    solver = Paper(neurons=1, use_lm1=False, use_lm2=False, steps=1000)
    patch = tp.TPatcher(solver).fit(model, TEXTS).edit(model, example)
    assert len(patch.tensors["bias"]) == 1
    assert patch.certificate.fixed is False
    assert patch.certificate.steps in range(1000)


def test_smoothed_cross_entropy() -> None:
    logits = torch.log(torch.tensor([[0.8, 0.1, 0.1]]))
    plain = paper.smoothed(logits, torch.tensor([0]), 0.0)
    assert plain == pytest.approx(-float(torch.log(torch.tensor(0.8))))
    log = torch.log(torch.tensor([0.8, 0.1, 0.1]))
    smooth = paper.smoothed(logits, torch.tensor([0]), 0.1)
    assert smooth == pytest.approx(-float(0.9 * log[0] + 0.1 * log.mean()), rel=1e-5)


def test_training_leaves_no_gradient_behind() -> None:
    model = fresh("bart")
    editor = tp.TPatcher(Paper(steps=3)).fit(model, TEXTS)
    editor.edit(model, tp.Example("what is the river of rome ?", "lima"))
    assert all(p.grad is None for p in model.net.parameters())


@pytest.mark.parametrize("name", ["builtin-fc", pytest.param("builtin-qa", marks=pytest.mark.slow)])
def test_the_papers_preset_fixes_real_mistakes(name: str) -> None:
    model = tp.load(name)
    split = tp.data.dataset(name)
    known, memory = split.retained(n_train=200, memory_size=1500)
    editor = tp.TPatcher(Paper()).fit(model, memory)
    right = model.correct(split.edit[:12])
    mistakes = [e for e, ok in zip(split.edit, right, strict=False) if not ok][:3]
    before = model.correct(known)
    for example in mistakes:
        patch = editor.edit(model, tp.Example(example.text, example.answer))
        assert isinstance(patch, Neurons)
        assert 1 <= len(patch.keys) <= 5
        assert patch.certificate.steps in range(125, 2001)
        model.push(patch)
    # in so small a model l_m outweighs l_a for some mistakes, and 2,000 steps do not fix them
    assert sum(model.correct(mistakes)) >= 2
    kept = [now for now, then in zip(model.correct(known), before, strict=True) if then]
    assert sum(kept) >= 0.97 * len(kept)


def test_the_papers_preset_runs_the_model_for_other_layers() -> None:
    model = fresh("gpt2")
    editor = tp.TPatcher(Paper(steps=150, repeats=2), layer=0).fit(model, TEXTS[:20])
    patch = editor.edit(model, tp.Example("what is the river of rome ?", "paris"))
    assert isinstance(patch, Neurons)
    assert patch.layer == -2
    assert patch.certificate.steps in range(151)
