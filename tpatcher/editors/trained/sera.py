"""SERAC (Mitchell et al., Memory-Based Model Editing at Scale, ICML 2022), and SERA, the paper's
variant of it: edits are kept in a cache beside the model.

A scope classifier tells whether a text asks what a cached edit was about. If so, SERA gives the
cached answer itself, and SERAC lets a small counterfactual model give it; if not, the model speaks.
"""

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import Lessons
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.cached_answer import CachedAnswer, Scope, states
from tpatcher.patches.pointer_network import Counterfactual


@dataclass
class Sera(Trained):
    """The cache and its scope classifier, trained on rephrasings against hard negatives."""

    name: ClassVar[str] = "sera"
    generates: ClassVar[bool] = False  # whether a counterfactual model gives the answer
    steps: int = 5000
    learning_rate: float = 1e-3  # of a head only: that paper's 1e-5 is for a whole encoder
    encoder: str = ""  # the sentence encoder: a directory or hub name; empty: the model's own
    size: int = 64  # of an embedding
    batch: int = 32  # pairs per step; the other pairs are what negatives are taken from
    negatives: int = 4  # the nearest so many of each text

    @classmethod
    def small(cls, **fields: Any) -> "Sera":
        """Settings that train within minutes on models of a few million weights."""
        return cls(**{"steps": 1500, "learning_rate": 3e-3, "pool": 4000, **fields})

    def build(self, model: Model) -> nn.Module:
        inputs, _ = states(model.net, model.task, ["hello"], self.encoder)
        parts: dict[str, nn.Module] = {"scope": Scope(inputs.shape[-1], self.size)}
        if self.generates:
            parts["counterfactual"] = Counterfactual()
        return nn.ModuleDict(parts)

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(learner.parameters(), lr=self.learning_rate)

    def loss(
        self, model: Model, learner: nn.Module, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """Binary cross-entropy of rephrasings and of the nearest other texts."""
        assert isinstance(learner, nn.ModuleDict)
        pairs = lessons.pairs(rng, self.batch)
        n = len(pairs)
        texts = [text for text, _ in pairs] + [other for _, other in pairs]
        scope = learner["scope"]
        assert isinstance(scope, Scope)
        embedded = scope(*states(model.net, model.task, texts, self.encoder))
        distance = torch.cdist(embedded[n:], embedded[:n]).square()  # rephrasings × texts
        own = scope.inside(distance.diagonal())
        others = distance.masked_fill(torch.eye(n, dtype=torch.bool, device=distance.device), 1e9)
        near = scope.inside(-(-others).topk(min(self.negatives, n - 1)).values)
        loss = F.softplus(-own).mean() + F.softplus(near).mean()
        if self.generates:
            loss = loss + self.copying(model, learner, lessons, rng)
        return loss

    def copying(
        self, model: Model, learner: nn.ModuleDict, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """The counterfactual model's loss on a few edits and their rephrasings.

        Every other one is taught some words of a text, so that any answer can be given later.
        """
        pairs = []
        for i in range(16):
            lesson = lessons.draw(rng, 1)
            answer = lesson.answer
            if i % 2:
                words = lesson.local[0].split()
                begin = rng.randrange(len(words))
                answer = " ".join(words[begin : begin + rng.randint(1, 8)])
            told = [
                model.task.tokenize(t, add_special_tokens=False).input_ids
                for t in (answer, lesson.rephrasing)
            ]
            pairs.append((told[0], told[1]))
        return learner["counterfactual"](pairs)  # type: ignore[no-any-return]

    def solve(self, model: Model, example: Example) -> CachedAnswer:
        learner = self.learned(model)
        assert isinstance(learner, nn.ModuleDict)
        scope = learner["scope"]
        with torch.no_grad():
            inputs, mask = states(model.unpatched().net, model.task, [example.text], self.encoder)
            embedding = scope(inputs, mask)[0]
        copier = learner["counterfactual"].state_dict() if self.generates else {}
        return CachedAnswer(
            example=example,
            editor=self.name,
            answer=model.task.canonical(example.answer),
            embedding=embedding,
            scope=scope.state_dict(),
            counterfactual=copier,
            encoder=self.encoder,
        )


@dataclass
class Serac(Sera):
    """SERA with a counterfactual model."""

    name: ClassVar[str] = "serac"
    generates: ClassVar[bool] = True
