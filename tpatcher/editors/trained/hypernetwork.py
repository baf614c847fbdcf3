"""What MEND and KE share: a network, the learner, that turns an edit's gradient into new weights.

The gradient of a weight matrix is a sum over tokens of outer products δ·uᵀ (as MEND uses it): u
is what went into the matrix, δ the gradient of its output. Both methods change these factors. While
they are trained a change of weights is kept as factors, so that one forward pass runs a batch with
a different change for each of its edits.
"""

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import TrainingEdit, TrainingEdits
from tpatcher.errors import NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, force, kl, logits, trainable
from tpatcher.nets import ffn
from tpatcher.nets.tasks import TeacherForced
from tpatcher.patches.weights import Weights

Factors = dict[str, tuple[Tensor, Tensor]]  # by matrix: u (B, T, in) and δ (B, T, out)


class GradientRecorder:
    """A twin of the model that records the factors of gradients, and runs under changes of weights.

    Hooks do both: on a run without a change they keep each matrix's input and output, on a run
    with one they add what the change makes of the input.
    """

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.model, self.names = model, list(names)
        self.net, _ = trainable(model, names)
        self._seen: dict[str, tuple[Tensor, Tensor]] = {}  # input and output of each matrix
        self._change: Factors = {}
        self._edit_of_row = torch.empty(0)
        for name in names:
            _stock_module(self.net, name).register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            if not self._change:
                self._seen[name] = args[0], output
                return output
            u, delta = (t[self._edit_of_row] for t in self._change[name])
            x = args[0].reshape(len(self._edit_of_row), -1, u.shape[-1])
            return output + ((x @ u.mT) @ delta).view_as(output)

        return hook

    def factors(self, forced: TeacherForced) -> Factors:
        """u and δ of every token of every row; the loss is that of the row's answer."""
        rows = int(forced.row.max()) + 1
        with torch.enable_grad():  # a check runs without
            current = logits(self.model, self.net, forced)
            target = forced.tokens.to(current.device)
            each = nn.functional.cross_entropy(current, target, reduction="none")
            share = 1 / forced.row.bincount()[forced.row]  # a row's loss is a mean over its tokens
            loss = (each * share.to(each.device)).sum()
        outputs = [self._seen[name][1] for name in self.names]
        deltas = torch.autograd.grad(loss, outputs)
        found = {}
        for name, delta in zip(self.names, deltas, strict=True):
            u = self._seen[name][0].detach()
            found[name] = u.reshape(rows, -1, u.shape[-1]), delta.reshape(rows, -1, delta.shape[-1])
        self._seen = {}
        return found

    def logits(self, forced: TeacherForced, change: Factors, edit_of_row: Tensor) -> Tensor:
        """The logits of a batch, each row under the change of the edit with its number."""
        self._change, self._edit_of_row = change, edit_of_row.to(self.model.net.device)
        try:
            return logits(self.model, self.net, forced)
        finally:
            self._change = {}


def _stock_module(net: nn.Module, weight: str) -> nn.Module:
    """The stock module that has the weight of this name."""
    return ffn.unwrap(net.get_submodule(weight.removesuffix(".weight")))


def transposed(net: nn.Module, name: str) -> bool:
    """Whether a matrix is laid out as (in, out), as Conv1D does; Linear has (out, in)."""
    return isinstance(_stock_module(net, name), Conv1D)


def sizes(net: nn.Module, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The number of inputs and outputs of each matrix."""
    shapes = {n: p.shape for n, p in net.named_parameters()}
    pairs = {n: (shapes[n][0], shapes[n][1]) for n in names}
    return {n: pair if transposed(net, n) else pair[::-1] for n, pair in pairs.items()}


def outer(u: Tensor, delta: Tensor, transposed: bool) -> Tensor:
    """Σ δ·uᵀ over tokens (T, ·), in the weight's own layout."""
    return u.T @ delta if transposed else delta.T @ u


@dataclass(frozen=True)
class Outcome:
    """What edits under training did, as one batch."""

    edit_loss: Tensor
    local_kl: Tensor
    right: Tensor  # of each text asked about an edit, whether it gets the edit's answer
    kept: Tensor  # of each local text, whether its answer stays


@dataclass
class HyperEditor(Trained):
    """An editor whose learner turns factors of the gradient into factors of a weight change."""

    edits: int = 1  # training edits per step
    local: int = 1  # texts per training edit whose answers should stay
    recorder: GradientRecorder | None = field(default=None, init=False, repr=False)  # in fit only

    @abstractmethod
    def names(self, model: Model) -> list[str]:
        """The names of the matrices that are edited."""

    @abstractmethod
    def change(
        self, model: Model, learner: Any, factors: Factors, edits: Sequence[TrainingEdit]
    ) -> Factors:
        """The factors of what is added to each matrix, for each edit."""

    @abstractmethod
    def asked(self, edit: TrainingEdit) -> list[str]:
        """The texts that an edit is to be answered at."""

    @abstractmethod
    def objective(self, learner: Any, outcome: Outcome) -> Tensor:
        """The training loss."""

    def edit_loss(self, model: Model, logits: Tensor, asked: TeacherForced) -> Tensor:
        """The loss of the edits' answers."""
        return cross_entropy(logits, asked)

    def fit(
        self,
        model: Model,
        examples: Sequence[str | Example],
        held_out: Sequence[str | Example] = (),
    ) -> Self:
        initial = model.unpatched()
        self.recorder = GradientRecorder(initial, self.names(initial))
        try:
            return super().fit(model, examples, held_out)
        finally:
            self.recorder = None

    def loss(self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random) -> Tensor:
        return self.objective(learner, self.outcome(model, learner, edits, rng))

    def outcomes(self, model: Model, learner: Any, edits: TrainingEdits) -> list[Outcome]:
        """What `validation` held-out edits do, the same ones at each check."""
        batches = range(max(1, self.validation // self.edits))
        rngs = (random.Random(f"{self.seed} check {i}") for i in batches)
        return [self.outcome(model, learner, edits, rng) for rng in rngs]

    def outcome(
        self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random
    ) -> Outcome:
        """Draw a batch of edits, make them, and ask what they are about and their local texts."""
        assert self.recorder is not None
        drawn = edits.draw(rng, self.edits, self.local)
        factors = self.recorder.factors(
            force(model, [e.text for e in drawn], [e.answer for e in drawn])
        )
        change = self.change(model, learner, factors, drawn)

        texts = [(i, text) for i, e in enumerate(drawn) for text in self.asked(e)]
        asked = force(model, [t for _, t in texts], [drawn[i].answer for i, _ in texts])
        after = self.recorder.logits(asked, change, torch.tensor([i for i, _ in texts]))

        local_texts = [text for e in drawn for text in e.local_texts]
        local = model.task.force(local_texts, [t for e in drawn for t in e.local_targets])
        edit_of_row = torch.tensor([i for i, e in enumerate(drawn) for _ in e.local_texts])
        with torch.no_grad():
            before = logits(model, model.net, local)
        stays = self.recorder.logits(local, change, edit_of_row)
        return Outcome(
            self.edit_loss(model, after, asked),
            kl(before, stays),
            right=_given(after, asked),
            kept=_given(stays, local),
        )

    def solve(self, model: Model, example: Example) -> Weights:
        learner, names = self.learner(model), self.names(model)
        before = model.answer([example.text])[0]
        edit = TrainingEdit(example.text, example.answer, before, example.text, [], [])
        forced = force(model, [example.text], [example.answer])
        factors = GradientRecorder(model, names).factors(forced)
        parameters = dict(model.net.named_parameters())
        values = {}
        with torch.no_grad():
            for name, (u, delta) in self.change(model, learner, factors, [edit]).items():
                added = outer(u[0], delta[0], transposed(model.net, name))
                values[name] = parameters[name] + added
        if not all(bool(torch.isfinite(v).all()) for v in values.values()):
            raise NotFixed(
                f"{self.name} gives weights that are not finite for {example.text!r}; the model is "
                "unchanged"
            )
        return Weights(example=example, editor=self.name, values=values)


def _given(logits: Tensor, forced: TeacherForced) -> Tensor:
    """Whether each row of a batch would be given its answer, 1 or 0."""
    hit = (logits.argmax(-1).cpu() == forced.tokens).float()
    rows = int(forced.row.max()) + 1
    return torch.ones(rows).scatter_reduce(0, forced.row, hit, "amin")
