"""MEND: the factors of the gradient, the identity to begin with, and stopping and resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, examples, fresh, wrong_label
from tpatcher.editors import Mend
from tpatcher.editors.trained.hypernetwork import GradientRecorder, outer, transposed
from tpatcher.editors.trained.mend import Transform
from tpatcher.errors import BadInput, NotFitted, WrongBase
from tpatcher.models.training import cross_entropy, force, logits, trainable


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2", "llama", "opt"])
def test_the_outer_products_are_the_gradient(name: str) -> None:
    model = fresh(name)
    names = Mend().names(model)
    answer = "no" if name == "bert" else "paris"
    forced = force(model, ["the capital of france"], [answer])
    net, fresh_weights = trainable(model, names)
    loss = cross_entropy(logits(model, net, forced), forced)
    gradients = torch.autograd.grad(loss, list(fresh_weights.values()))
    found = GradientRecorder(model, names).factors(forced)
    for n, gradient in zip(fresh_weights, gradients, strict=True):
        u, delta = (t[0] for t in found[n])
        torch.testing.assert_close(outer(u, delta, transposed(net, n)), gradient)


def test_an_identity_network_gives_the_true_gradient() -> None:
    """Untrained and with nothing to normalise by, (u, δ) come out as they went in."""
    torch.manual_seed(0)
    u, delta = torch.randn(2, 3, 5), torch.randn(2, 3, 4)
    delta[1, 2] = 0  # a token that no gradient comes back to
    net = Transform(5, 4, 8, 2).eval()
    out_u, out_delta = net(u, delta, 1)
    torch.testing.assert_close(out_delta.mT @ out_u, delta.mT @ u)
    assert not out_u[1, 2].any()


def test_running_mean_and_variance() -> None:
    torch.manual_seed(0)
    pairs = torch.randn(50, 9) * 3 + 1
    net = Transform(5, 4, 8, 1)
    for part in pairs.split(7):
        net.update_statistics(part)
    torch.testing.assert_close(net.mean, pairs.mean(0))
    torch.testing.assert_close(net.square / (net.count - 1), pairs.var(0))


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_rows_under_different_changes_run_as_one_by_one(name: str) -> None:
    model = fresh(name)
    names = Mend().names(model)
    recorder = GradientRecorder(model, names)
    answer = "no" if name == "bert" else "paris"
    texts = ["the capital of france", "red dog", "who was william ?"]
    found = recorder.factors(force(model, texts[:2], [answer] * 2))
    change = {n: (u, -0.5 * delta) for n, (u, delta) in found.items()}
    asked = force(model, texts, [answer] * 3)
    together = recorder.logits(asked, change, torch.tensor([0, 1, 1]))
    for row, edit in enumerate([0, 1, 1]):
        net, weights = trainable(model, names)
        for n, (u, delta) in change.items():
            weights[n].data += outer(u[edit], delta[edit], transposed(net, n))
        alone = logits(model, net, force(model, [texts[row]], [answer]))
        torch.testing.assert_close(together[asked.row == row], alone, atol=1e-3, rtol=1e-3)


def test_stop_and_resume_is_the_same_as_not_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def editor(**more: object) -> Mend:
        knobs = {"steps": 6, "rank": 4, "edits": 1, "check_every": 2, "validation": 4}
        return Mend(**knobs, learning_rate=1e-2, progress=False, **more)  # type: ignore[arg-type]

    model = fresh("bert")
    whole = editor().fit(model, examples("bert"))
    stopped = editor(checkpoint=tmp_path)
    begin = stopped.after_step

    def stop(learner: torch.nn.Module, step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt
        begin(learner, step)

    monkeypatch.setattr(stopped, "after_step", stop, raising=False)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(model, examples("bert"))
    # the step that was interrupted is taken again, from the checkpoint before it
    again = editor(checkpoint=tmp_path)
    with pytest.raises(BadInput, match="other settings"):
        Mend(steps=6, rank=5, checkpoint=tmp_path).fit(model, QUESTIONS)
    again.fit(model, examples("bert"))
    assert whole.state.keys() == again.state.keys()
    assert all(torch.equal(whole.state[k], again.state[k]) for k in whole.state)
    assert Mend.load(tmp_path).state.keys() == whole.state.keys(), "a finished one can be loaded"
    again.fit(model, [])  # complete: nothing is trained, so nothing is needed


def test_save_and_load(tmp_path: Path) -> None:
    model = fresh("bert")
    with pytest.raises(NotFitted):
        Mend().save(tmp_path)
    editor = Mend(steps=2, rank=4, edits=1, progress=False).fit(model, examples("bert"))
    editor.save(tmp_path)
    back = Mend.load(tmp_path)
    assert back.rank == 4
    example = tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0]))
    assert back.edit(model, example).checksum == editor.edit(model, example).checksum
    with pytest.raises(WrongBase):
        back.edit(fresh("bart"), tp.Example(QUESTIONS[0], "paris"))
    with pytest.raises(NotFitted, match="not trained"):
        Mend().edit(model, example)


def test_the_last_layers_of_both_stacks_are_edited() -> None:
    """The last three of one stack, the last two of an encoder and of a decoder."""
    for name, stacks in (("bert", ["encoder.layer"]), ("bart", ["encoder.", "decoder."])):
        names = Mend().names(fresh(name))
        depth = fresh(name).n_layers
        each = min(depth, 3 if name == "bert" else 2)
        assert len(names) == 2 * each * len(stacks)
        for stack in stacks:
            assert sum(stack in n for n in names) == 2 * each
    assert len(Mend(layers=1).names(fresh("bart"))) == 4


def test_training_lowers_the_loss_of_held_out_edits() -> None:
    model = fresh("bart")
    scores: list[float] = []

    class Noted(Mend):
        def check(self, *args: Any) -> float:
            scores.append(super().check(*args))
            return scores[-1]

    editor = Noted(steps=20, rank=8, edits=4, edit_rate=0.01, edit_weight=1.0, progress=False)
    editor.learning_rate, editor.check_every, editor.validation = 1e-2, 5, 8
    editor.fit(model, examples("bart"))
    assert len(scores) == 4
    assert min(scores) < 0.9 * scores[0]
