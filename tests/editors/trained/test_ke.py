"""KE: the gated gradient, and the constraint that is annealed."""

import torch

from tests.helpers import QUESTIONS, examples, fresh
from tpatcher.editors import KE
from tpatcher.editors.trained.hypernetwork import GradientRecorder, outer, sizes
from tpatcher.editors.trained.ke import Learner, gated
from tpatcher.editors.trained.training_edits import TrainingEdit
from tpatcher.models.training import force


def gates(zero: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(1, 1, n) for n in (5, 4, 5, 4, 1)]
    if zero:
        made[0], made[2] = torch.zeros_like(made[0]), torch.zeros_like(made[2])
    return made


def test_the_gated_gradient_is_that_of_the_paper() -> None:
    u, delta = torch.randn(1, 3, 5), torch.randn(1, 3, 4)
    in_a, out_a, in_b, out_b, eta = gates(zero=False)
    gradient = (delta.mT @ u)[0]
    a = out_a[0, 0].softmax(-1).outer(in_a[0, 0])
    b = out_b[0, 0].softmax(-1).outer(in_b[0, 0])
    found_u, found_delta = gated(u, delta, in_a, out_a, in_b, out_b, eta)
    wanted = eta.sigmoid()[0, 0] * (gradient * a + b)
    torch.testing.assert_close(outer(found_u[0], found_delta[0], False), wanted)


def test_nothing_is_changed_when_the_gates_are_zero() -> None:
    u, delta = torch.randn(1, 3, 5), torch.randn(1, 3, 4)
    found_u, found_delta = gated(u, delta, *gates(zero=True))
    assert not outer(found_u[0], found_delta[0], False).any()


def test_the_change_has_the_shape_of_the_gradient() -> None:
    for name in ("bert", "gpt2"):
        model, editor = fresh(name), KE(hidden=4, condition=6)
        names = editor.names(model)
        learner = editor.build(model)
        answer = "no" if name == "bert" else "paris"
        found = GradientRecorder(model, names).factors(force(model, QUESTIONS[:2], [answer] * 2))
        edits = [TrainingEdit(t, answer, "yes", t, [], []) for t in QUESTIONS[:2]]
        change = editor.change(model, learner, found, edits)
        for n, (ins, outs) in sizes(model.net, names).items():
            u, delta = change[n]
            assert (delta.mT @ u).shape == (2, outs, ins)


def test_the_margin_shrinks_once_edits_succeed_and_the_multiplier_climbs() -> None:
    model = fresh("bert")
    editor = KE(hidden=4, condition=6, margin_every=2)
    learner = editor.build(model)
    assert isinstance(learner, Learner)
    editor.after_step(learner, 1)
    assert float(learner.margin) == torch.tensor(0.1)
    learner.flipped = torch.tensor(0.95)
    editor.after_step(learner, 0)
    assert float(learner.margin) == torch.tensor(0.1)
    editor.after_step(learner, 1)
    torch.testing.assert_close(learner.margin, torch.tensor(0.08))
    for _ in range(100):
        editor.after_step(learner, 1)
    torch.testing.assert_close(learner.margin, torch.tensor(editor.margin_least))

    loss = editor.objective(learner, torch.tensor(1.0), torch.tensor(0.5), torch.ones(2))
    (slope,) = torch.autograd.grad(loss, [learner.alpha])
    assert slope < 0  # KL is above the margin: descending makes α larger
    learner.alpha.data -= 9
    editor.after_step(learner, 0)
    assert float(learner.alpha.detach()) == 0


def test_one_fit() -> None:
    model = fresh("bert")
    editor = KE(steps=4, hidden=4, condition=6, edits=2, progress=False, learning_rate=1e-2)
    editor.fit(model, examples("bert"))
    assert editor.state["words.weight"].shape == model.net.get_input_embeddings().weight.shape
