"""KE, KnowledgeEditor (De Cao et al., Editing Factual Knowledge in Language Models, EMNLP 2021).

An LSTM reads the edit, "said >> wanted || text". From its state, small networks make for every
weight matrix W with gradient G a gated gradient, σ(η)·(G ⊙ a + b), where a and b have rank one;
that is added to W. Training minimises the edit's loss under the constraint that KL to the initial
model stays below a margin, which shrinks once nine of ten edits succeed.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher.editors.forced import cross_entropy, force, kl, logits, trainable
from tpatcher.editors.lessons import Lessons
from tpatcher.editors.trained import Trained
from tpatcher.example import Example
from tpatcher.models import Model
from tpatcher.weights import Weights, matrices


@dataclass
class KE(Trained):
    """The gated gradient. Defaults are that paper's; `small` is for the built-in models."""

    name: ClassVar[str] = "ke"
    steps: int = 200_000
    learning_rate: float = 3e-4
    constraint_rate: float = 0.1  # of α, the multiplier of the constraint
    margin: float = 0.1  # of KL at first
    margin_least: float = 1e-3
    margin_decay: float = 0.8
    margin_every: int = 1000  # steps after which the margin may shrink
    max_scale: float = 1.0
    hidden: int = 128
    condition: int = 1024
    edits: int = 1  # per step
    local: int = 3  # texts per edit that are to stay

    @classmethod
    def small(cls, **fields: Any) -> "KE":
        """Settings that train within minutes on models of a few million weights."""
        quick: dict[str, Any] = {
            "steps": 3000, "learning_rate": 1e-3, "margin_every": 200, "hidden": 64,
            "condition": 128, "pool": 4000, "local": 8,
        }  # fmt: skip
        return cls(**{**quick, **fields})

    def build(self, model: Model) -> nn.Module:
        words = model.net.get_input_embeddings().weight.detach().float()
        shapes = {name: tuple(p.shape) for name, p in matrices(model.net).items()}
        return Learner(words, shapes, self.hidden, self.condition, self.max_scale, self.margin)

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        assert isinstance(learner, Learner)
        rest = [p for n, p in learner.named_parameters() if n != "alpha"]
        groups = [{"params": rest}, {"params": [learner.alpha], "lr": self.constraint_rate}]
        return torch.optim.RMSprop(groups, lr=self.learning_rate, centered=True)

    def loss(
        self, model: Model, learner: nn.Module, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """l_e + α·(KL − margin): minimised over the learner, maximised over α."""
        assert isinstance(learner, Learner)
        terms = []
        for _ in range(self.edits):
            lesson = lessons.draw(rng, self.local)
            change = self.change(model, learner, lesson.text, lesson.answer, lesson.said)
            weights = {n: p.detach() + change[n] for n, p in matrices(model.net).items()}
            asked = force(model, [lesson.text, lesson.rephrasing], [lesson.answer] * 2)
            local = force(model, lesson.local, lesson.local_said)
            with torch.no_grad():
                before = logits(model, model.net, local)
            after = logits(model, model.net, asked, weights)
            apart = kl(before, logits(model, model.net, local, weights)) - learner.margin
            right = bool((after.argmax(-1) == asked.tokens.to(after.device)).all())
            learner.note(right)
            # the multiplier climbs where the learner descends
            constraint = learner.alpha.detach() * apart - learner.alpha * apart.detach()
            terms.append(cross_entropy(after, asked) + constraint)
        return torch.stack(terms).mean()

    def after_step(self, learner: nn.Module, step: int) -> None:
        assert isinstance(learner, Learner)
        learner.alpha.data = learner.alpha.data.clamp(min=0)
        if (step + 1) % self.margin_every == 0:
            if float(learner.flipped) > 0.9:
                learner.margin = (learner.margin * self.margin_decay).clamp(min=self.margin_least)

    def change(
        self, model: Model, learner: "Learner", text: str, answer: str, said: str
    ) -> dict[str, Tensor]:
        """What is added to each matrix."""
        names = list(matrices(model.net))
        net, fresh = trainable(model, names)
        forced = force(model, [text], [answer])
        loss = cross_entropy(logits(model, net, forced), forced)
        gradients = torch.autograd.grad(loss, list(fresh.values()))
        told = model.task.tokenize(f"{said} >> {answer} || {text}", return_tensors="pt",
                                   truncation=True, max_length=model.task.context)  # fmt: skip
        ids = told["input_ids"].to(model.net.device)
        return learner(ids, dict(zip(names, gradients, strict=True)))

    def solve(self, model: Model, example: Example) -> Weights:
        learner = self.learned(model)
        assert isinstance(learner, Learner)
        said = model.answer([example.text])[0]
        change = self.change(model, learner, example.text, example.answer, said)
        known = matrices(model.net)
        values = {n: known[n].detach() + change[n].detach() for n in known}
        return Weights(example=example, editor=self.name, values=values)


class Learner(nn.Module):
    """The conditioner, the gates of every matrix, and the state of the constraint."""

    def __init__(
        self,
        words: Tensor,
        shapes: Mapping[str, tuple[int, ...]],
        hidden: int,
        condition: int,
        max_scale: float,
        margin: float,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(words.clone(), freeze=False)
        self.lstm = nn.LSTM(words.shape[1], hidden, bidirectional=True, batch_first=True)
        self.summary = nn.Linear(2 * hidden, condition)
        self.names = {name: str(i) for i, name in enumerate(shapes)}
        self.gates = nn.ModuleDict(
            {self.names[n]: Gates(rows, columns, condition, hidden, max_scale)
             for n, (rows, columns) in shapes.items()}
        )  # fmt: skip
        self.alpha = nn.Parameter(torch.ones(()))
        self.margin: Tensor
        self.flipped: Tensor
        self.register_buffer("margin", torch.tensor(margin))
        self.register_buffer("flipped", torch.zeros(()))

    def forward(self, ids: Tensor, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        _, (last, _) = self.lstm(self.words(ids))  # (2, 1, hidden): one for each direction
        state = self.summary(last.transpose(0, 1).flatten()).tanh()
        return {n: self.gates[self.names[n]](state, g) for n, g in gradients.items()}

    def note(self, right: bool) -> None:
        """A running share of the edits that succeed, over about the last hundred."""
        self.flipped = 0.99 * self.flipped + 0.01 * right


class Gates(nn.Module):
    """Makes the gates of one matrix from the state of the conditioner."""

    def __init__(
        self, rows: int, columns: int, condition: int, hidden: int, max_scale: float
    ) -> None:
        super().__init__()
        self.sizes, self.max_scale = [columns, rows, columns, rows, 1], max_scale
        normed = nn.utils.parametrizations.weight_norm
        self.layers = nn.Sequential(
            normed(nn.Linear(condition, hidden)), nn.Tanh(),
            normed(nn.Linear(hidden, sum(self.sizes))),
        )  # fmt: skip

    def forward(self, state: Tensor, gradient: Tensor) -> Tensor:
        return self.max_scale * gated(gradient, *self.layers(state).split(self.sizes))


def gated(
    gradient: Tensor, column_a: Tensor, row_a: Tensor, column_b: Tensor, row_b: Tensor, eta: Tensor
) -> Tensor:
    """σ(η)·(G ⊙ a + b), with a and b the products of a softmax over rows and a vector."""
    a = row_a.softmax(-1).outer(column_a)
    b = row_b.softmax(-1).outer(column_b)
    return eta.sigmoid() * (gradient * a + b)
