"""Fine-tuning: which weights, until when, and the KL term."""

import math

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, examples, fresh, wrong_label
from tpatcher.editors import FTAll, FTAllKL, FTLast
from tpatcher.editors.finetune import KLAnchor
from tpatcher.errors import NotFitted
from tpatcher.models.training import kl
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.weights import Weights, matrices


def test_kl_by_hand() -> None:
    """KL((½, ½) ‖ (¼, ¾)) = ½·ln 2 + ½·ln ⅔ = 0.1438."""
    even, uneven = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3)]])
    wanted = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl(even, uneven).item() == pytest.approx(wanted, abs=1e-6)
    assert kl(torch.cat([even, even]), torch.cat([uneven, even])).item() == pytest.approx(
        wanted / 2
    )
    assert kl(even, even).item() == 0


def test_only_matrices_of_the_layers_are_tuned() -> None:
    model = fresh("bert")
    names = matrices(model.net)
    assert len(names) == 2 * 6  # two layers: query, key, value, output, and the feed-forward two
    assert not any(
        word in name for name in names for word in ("bias", "Norm", "embed", "pooler", "classifier")
    )
    example = tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0]))
    last = FTLast(learning_rate=0.01).edit(model, example)
    every = FTAll(learning_rate=0.01).edit(model, example)
    assert isinstance(last, Weights)
    assert isinstance(every, Weights)
    assert set(every.values) == set(names)
    assert set(last.values) == {n for n in names if n.startswith("bert.encoder.layer.1.")}


def test_it_stops_when_the_model_itself_is_right() -> None:
    model = fresh("gpt2")
    example = tp.Example("who wrote hamlet ?", "william shakespeare")
    patch = FTLast(learning_rate=0.01).edit(model, example)
    steps = patch.certificate.steps
    assert patch.certificate.fixed
    assert steps is not None and 0 < steps < 2000
    fewer = FTLast(learning_rate=0.01, steps=steps - 1).edit(model, example)
    assert fewer.certificate == Certificate(fixed=False, steps=steps - 1)
    model.push(fewer)
    assert model.correct([example]) == [False]


def test_the_kl_term_needs_a_memory() -> None:
    model = fresh("bert")
    with pytest.raises(NotFitted):
        FTAllKL().edit(model, tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0])))


def test_the_anchor_holds_memory_and_past_edits_against_the_initial_model() -> None:
    model = fresh("bert")
    past = tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0]))
    model.push(FTAll(learning_rate=0.01).edit(model, past))
    editor = FTAllKL(kl_batch=5).fit(model, examples("bert")[1:])
    anchor = editor.anchor(model, tp.Example("a red fish", "no"))
    assert anchor.positions == 5 + 1
    assert anchor(model.unpatched().net).item() == pytest.approx(0, abs=1e-6)
    assert anchor(model.net).item() > 1e-3
    editor.reference = "before"
    assert editor.anchor(model, past)(model.net).item() == pytest.approx(0, abs=1e-6)


def test_the_kl_term_keeps_the_model_nearer_to_what_it_was() -> None:
    model = fresh("bert")
    example = tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0]))
    anchor = KLAnchor(model, model.unpatched(), QUESTIONS[1:])
    away = []
    for editor in (FTAll(learning_rate=1e-3), FTAllKL(learning_rate=1e-3, kl_weight=10)):
        twin = model.twin()
        twin.push(editor.fit(model, QUESTIONS[1:]).edit(model, example))
        assert twin.correct([example]) == [True]
        away.append(anchor(twin.net).item())
    assert away[1] < away[0]
