"""What MEND and KE share: a network that turns an edit's gradient into new weights.

The gradient of a weight matrix is a sum over tokens of outer products δ·uᵀ: of what comes back to
the matrix's output, and what went into it. Both methods change these factors, so a change of
weights is kept as factors while they are trained: a batch then runs under as many different
changes as it has edits, in one pass.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import Lesson, Lessons
from tpatcher.errors import NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, force, kl, logits, trainable
from tpatcher.nets.tasks import TeacherForced
from tpatcher.patches import codebook
from tpatcher.patches.weights import Weights

Factors = dict[str, tuple[Tensor, Tensor]]  # of each matrix: u (B, T, in) and δ (B, T, out)


class Watched:
    """A twin whose matrices tell the factors of their gradients, and can be changed by factors."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.model, self.names = model, list(names)
        self.net, _ = trainable(model, names)
        self.seen: dict[str, tuple[Tensor, Tensor]] = {}
        self.change: Factors = {}
        self.owner = torch.empty(0)
        for name in names:
            codebook.stock(self.net, module_of(name)).register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            if not self.change:
                self.seen[name] = args[0], output
                return output
            u, delta = (t[self.owner] for t in self.change[name])  # of the edit that a row is under
            x = args[0].reshape(len(self.owner), -1, u.shape[-1])
            return output + ((x @ u.mT) @ delta).view_as(output)

        return hook

    def factors(self, forced: TeacherForced) -> Factors:
        """u and δ of every token of every row, of the loss of its answer."""
        rows = int(forced.row.max()) + 1
        seen = logits(self.model, self.net, forced)
        each = nn.functional.cross_entropy(seen, forced.tokens.to(seen.device), reduction="none")
        share = 1 / forced.row.bincount()[forced.row]  # each row's loss is a mean over its tokens
        back = torch.autograd.grad(
            (each * share.to(each.device)).sum(), [self.seen[n][1] for n in self.names]
        )
        found = {}
        for name, delta in zip(self.names, back, strict=True):
            u = self.seen[name][0].detach()
            found[name] = u.reshape(rows, -1, u.shape[-1]), delta.reshape(rows, -1, delta.shape[-1])
        self.seen = {}
        return found

    def logits(self, forced: TeacherForced, change: Factors, owner: Tensor) -> Tensor:
        """Logits of a batch, each row under the change of the edit that it belongs to."""
        self.change, self.owner = change, owner.to(self.model.net.device)
        try:
            return logits(self.model, self.net, forced)
        finally:
            self.change = {}


def module_of(name: str) -> str:
    return name.removesuffix(".weight")


def transposed(net: nn.Module, name: str) -> bool:
    """Whether a matrix is laid out as (in, out): Linear has (out, in), Conv1D the other."""
    return isinstance(codebook.stock(net, module_of(name)), Conv1D)


def sizes(net: nn.Module, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The inputs and outputs of each matrix."""
    known = dict(net.named_parameters())
    pairs = {n: (known[n].shape[0], known[n].shape[1]) for n in names}
    return {n: pair if transposed(net, n) else pair[::-1] for n, pair in pairs.items()}


def outer(u: Tensor, delta: Tensor, transposed: bool) -> Tensor:
    """Σ δ·uᵀ over tokens (T, ·), in the weight's own layout."""
    return u.T @ delta if transposed else delta.T @ u


@dataclass
class HyperEditor(Trained):
    """An editor whose network turns factors of the gradient into factors of an update."""

    edits: int = 1  # per step
    local: int = 1  # texts per edit that are to stay
    watched: Watched | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def names(self, model: Model) -> list[str]:
        """The matrices that are edited."""

    @abstractmethod
    def change(
        self, model: Model, learner: nn.Module, found: Factors, lessons: Sequence[Lesson]
    ) -> Factors:
        """The factors of what is added to each matrix, for each lesson."""

    @abstractmethod
    def objective(self, learner: nn.Module, edit: Tensor, apart: Tensor, right: Tensor) -> Tensor:
        """The loss, from that of the edits, the KL of the local texts, and which edits succeed."""

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        bare = model.unpatched()
        self.watched = Watched(bare, self.names(bare))
        try:
            return super().fit(model, examples)
        finally:
            self.watched = None

    def settings(self) -> dict[str, Any]:
        hidden = {f.name for f in fields(self) if not f.init}
        return {k: v for k, v in super().settings().items() if k not in hidden}

    def loss(
        self, model: Model, learner: nn.Module, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """Edits of one batch, each seen at its text and a rephrasing, and at texts that stay."""
        assert self.watched is not None
        drawn = [lessons.draw(rng, self.local) for _ in range(self.edits)]
        texts, answers = [x.text for x in drawn], [x.answer for x in drawn]
        found = self.watched.factors(force(model, texts, answers))
        change = self.change(model, learner, found, drawn)
        asked = force(model, texts + [x.rephrasing for x in drawn], answers * 2)
        stay = model.task.force(
            [t for x in drawn for t in x.local], [t for x in drawn for t in x.local_said]
        )
        owner = torch.arange(len(drawn))
        after = self.watched.logits(asked, change, owner.repeat(2))
        whose = torch.tensor([i for i, x in enumerate(drawn) for _ in x.local])
        with torch.no_grad():
            before = logits(model, model.net, stay)
        apart = kl(before, self.watched.logits(stay, change, whose))
        hit = (after.argmax(-1).cpu() == asked.tokens).float()
        right = torch.ones(len(texts) * 2).scatter_reduce(0, asked.row, hit, "amin")
        return self.objective(learner, cross_entropy(after, asked), apart, right)

    def solve(self, model: Model, example: Example) -> Weights:
        learner, names = self.learned(model), self.names(model)
        said = model.answer([example.text])[0]
        lesson = Lesson(example.text, example.answer, said, example.text, [], [])
        found = Watched(model, names).factors(force(model, [example.text], [example.answer]))
        known = dict(model.net.named_parameters())
        with torch.no_grad():
            change = self.change(model, learner, found, [lesson])
            values = {
                n: known[n] + outer(change[n][0][0], change[n][1][0], transposed(model.net, n))
                for n in names
            }
        return finite(example, self.name, values)


def finite(example: Example, editor: str, values: Mapping[str, Tensor]) -> Weights:
    """The patch, unless the editor was led so far astray that it gives no numbers at all."""
    if not all(bool(torch.isfinite(v).all()) for v in values.values()):
        raise NotFixed(f"{editor} gives infinite weights for {example.text!r}; the model is lost")
    return Weights(example=example, editor=editor, values=values)
