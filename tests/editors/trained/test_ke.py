"""KE: the gated gradient, the constraint that is annealed, the loop, the released networks."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import weight_norm

import tpatcher as tp
from tests.helpers import QUESTIONS, examples, fresh, wrong_label
from tpatcher.editors import KE
from tpatcher.editors.trained.hypernetwork import (
    GradientRecorder,
    HyperEditor,
    Outcome,
    outer,
    sizes,
)
from tpatcher.editors.trained.ke import gated
from tpatcher.editors.trained.training_edits import TrainingEdit, TrainingEdits
from tpatcher.errors import BadInput, WrongBase
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


def outcome(right: list[float], kept: list[float], kl: float = 0.5) -> Outcome:
    tensors = (torch.tensor(right), torch.tensor(kept))
    return Outcome(torch.tensor(1.0), torch.tensor(kl), *tensors)


def test_the_margin_shrinks_when_nine_of_ten_held_out_edits_succeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fresh("bert")
    editor = KE(hidden=4, condition=6, margin_least=0.05)
    learner, edits = editor.build(model), TrainingEdits(model, QUESTIONS)
    nine = [outcome([1.0] * 9 + [0.0], [1.0] * 10)]
    monkeypatch.setattr(editor, "outcomes", lambda *_: nine)
    assert editor.check(model, learner, edits) == pytest.approx(1 / 20)
    torch.testing.assert_close(learner.margin, torch.tensor(0.1))
    monkeypatch.setattr(editor, "outcomes", lambda *_: [outcome([1.0] * 10, [0.0] * 10)])
    assert editor.check(model, learner, edits) == pytest.approx(0.5)
    torch.testing.assert_close(learner.margin, torch.tensor(0.08))
    for _ in range(100):
        editor.check(model, learner, edits)
    torch.testing.assert_close(learner.margin, torch.tensor(0.05))


def test_margins_are_those_of_the_task() -> None:
    editor = KE(hidden=4, condition=6)
    for name, margin in (("bert", 0.1), ("bart", 1e-3)):
        torch.testing.assert_close(editor.build(fresh(name)).margin, torch.tensor(margin))


def test_the_multiplier_climbs_above_the_margin_and_never_below_0() -> None:
    editor = KE(hidden=4, condition=6)
    learner = editor.build(fresh("bert"))
    loss = editor.objective(learner, outcome([1.0], [1.0]))
    (slope,) = torch.autograd.grad(loss, [learner.alpha])
    assert slope < 0  # KL is above the margin: descending makes α larger
    learner.alpha.data -= 9
    editor.after_step(learner, 0)
    assert float(learner.alpha.detach()) == 0


def test_rates_warm_up_and_decay() -> None:
    editor = KE(steps=100, warmup=10)
    assert [editor.rate(step) for step in (0, 5, 10, 55, 100)] == [0, 0.5, 1, 0.5, 0]


def test_one_fit() -> None:
    model = fresh("bert")
    editor = KE(steps=4, hidden=4, condition=6, edits=2, progress=False, learning_rate=1e-2)
    editor.validation = 4
    editor.fit(model, examples("bert"))
    assert editor.state["words.weight"].shape == model.net.get_input_embeddings().weight.shape


def test_with_and_without_loop_are_one_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KE(loops=5).fit_key() == KE().fit_key() != KE(steps=7).fit_key()
    model = fresh("bert")
    example = tp.Example(QUESTIONS[0], wrong_label(model, QUESTIONS[0]))
    fitted = KE(steps=1, hidden=4, condition=6, validation=4, max_scale=0.0, progress=False)
    fitted.fit(model, examples("bert"))  # with a scale of 0 no edit succeeds
    for loops in (1, 5):
        made: list[int] = []
        fitted.loops = loops
        step = HyperEditor.solve

        def counted(*args: Any, made: list[int] = made, step: Any = step) -> Any:
            made.append(1)
            return step(*args)

        monkeypatch.setattr(HyperEditor, "solve", counted)
        fitted.edit(model, example)
        monkeypatch.undo()
        assert len(made) == loops


old_weight_norm = pytest.mark.filterwarnings("ignore:.*weight_norm")  # as the released code has


class Odd:
    """What no tensor file holds."""


class AttributeDict(dict[str, Any]):
    """Stands for Lightning's, which holds the hyper-parameters in a checkpoint."""


@old_weight_norm
@pytest.mark.parametrize(("name", "ending"), [("bert", ".ckpt"), ("bart", ".safetensors")])
def test_the_released_networks_are_read(name: str, ending: str, tmp_path: Path) -> None:
    """A file of the released layout gives the change that its own code would give."""
    model, path = fresh(name), tmp_path / f"released{ending}"
    theirs = released(model, path)
    editor = KE(hidden=4, condition=6, released=str(path)).fit(model, [])
    answer = "no" if name == "bert" else "paris"
    names = editor.names(model)
    found = GradientRecorder(model, names).factors(force(model, QUESTIONS[:1], [answer]))
    edit = TrainingEdit(QUESTIONS[0], answer, "yes", "", [], [])
    change = editor.change(model, editor.learner(model), found, [edit])
    ids = model.tokenizer(f"yes >> {answer} || {QUESTIONS[0]}", return_tensors="pt").input_ids
    for n in names:
        u, delta = (t[0] for t in found[n])
        wanted = theirs(ids, n, delta.mT @ u)
        new_u, new_delta = change[n]
        torch.testing.assert_close((new_delta.mT @ new_u)[0], wanted)


@old_weight_norm
def test_a_released_file_of_another_model_or_with_code_is_refused(tmp_path: Path) -> None:
    released(fresh("bert"), tmp_path / "bert.ckpt")
    with pytest.raises(WrongBase, match="trained for this model"):
        KE(hidden=4, condition=6, released=str(tmp_path / "bert.ckpt")).fit(fresh("bart"), [])
    with pytest.raises(WrongBase, match="but a KE for 'bert' has it as"):
        KE(hidden=5, condition=6, released=str(tmp_path / "bert.ckpt")).fit(fresh("bert"), [])
    torch.save({"state_dict": {}, "code": Odd()}, tmp_path / "odd.ckpt")
    with pytest.raises(BadInput, match="cannot be read as tensors alone"):
        KE(released=str(tmp_path / "odd.ckpt")).fit(fresh("bert"), [])
    with pytest.raises(BadInput, match="no file"):
        KE(released=str(tmp_path / "none.ckpt")).fit(fresh("bert"), [])


def released(model: tp.Model, path: Path) -> Callable[[Tensor, str, Tensor], Tensor]:
    """Write networks as De Cao et al. released them, and return what they make of a gradient."""
    torch.manual_seed(0)
    width = model.net.get_input_embeddings().weight.shape
    lstm = nn.LSTM(width[1], 4, bidirectional=True, batch_first=True)
    words, linear = nn.Embedding(*width), nn.Linear(8, 6)
    tensors = {f"learner.condition.lstm._module.{k}": v for k, v in lstm.state_dict().items()}
    tensors["learner.condition.embedding.weight"] = words.weight.detach()
    for k, v in linear.state_dict().items():
        tensors[f"learner.condition.linear._linear_layers.0.{k}"] = v
    for name in ("kl", "lp"):
        tensors |= {f"alpha_{name}": torch.ones(()), f"margin_{name}": torch.tensor(0.1)}
    parts = {}
    for n in KE().names(model):
        outs, ins = dict(model.net.named_parameters())[n].shape
        first, second = nn.Linear(6, 4), nn.Linear(4, 2 * (ins + outs) + 1)
        parts[n] = nn.Sequential(weight_norm(first), nn.Tanh(), weight_norm(second))
        own = n.replace("bert.", "model.", 1).replace(".", "_")
        begin = f"learner.conditioners.{own}_conditioner.conditioners."
        tensors |= {f"{begin}{k}": v.detach().clone() for k, v in parts[n].state_dict().items()}
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        _save_as_lightning_does({**tensors, "model.classifier.bias": torch.ones(1)}, path)

    @torch.no_grad()
    def change(ids: Tensor, name: str, gradient: Tensor) -> Tensor:
        _, (last, _) = lstm(words(ids))
        state = linear(last.transpose(0, 1).flatten(1)).tanh()
        outs, ins = gradient.shape
        col_a, row_a, col_b, row_b, norm = parts[name](state).split([ins, outs, ins, outs, 1], -1)
        a, b = row_a.softmax(-1).T @ col_a, row_b.softmax(-1).T @ col_b
        return norm.sigmoid().squeeze() * (gradient * a + b)

    return change


def _save_as_lightning_does(tensors: dict[str, Tensor], path: Path) -> None:
    """A checkpoint with more in it than tensors, of a class that is not installed here."""
    name = "pytorch_lightning.utilities.parsing"
    with pytest.MonkeyPatch.context() as patch:
        for i in range(3):
            part = ".".join(name.split(".")[: i + 1])
            patch.setitem(sys.modules, part, ModuleType(part))
        patch.setattr(sys.modules[name], "AttributeDict", AttributeDict, raising=False)
        patch.setattr(AttributeDict, "__module__", name)
        more = {"hyper_parameters": AttributeDict(max_scale=1), "epoch": 3}
        torch.save({"state_dict": tensors, **more}, path)
