"""SERAC (Mitchell et al., Memory-Based Model Editing at Scale, ICML 2022), and SERA, the T-Patcher
paper's variant of it: edits are kept in a cache beside the model.

A scope classifier decides whether a text asks what a cached edit was about. If so, SERA gives the
cached answer itself, and SERAC lets a small counterfactual model give it; if not, the edited model
answers.
"""

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.cached_answer import CachedAnswer, Scope, token_states
from tpatcher.patches.pointer_network import Counterfactual


@dataclass
class Sera(Trained):
    """A cache with a scope classifier, trained on rephrasings against the nearest other texts."""

    name: ClassVar[str] = "sera"
    generates: ClassVar[bool] = False  # whether a counterfactual model gives the answer
    SMALL: ClassVar[dict[str, Any]] = {"steps": 1500, "learning_rate": 3e-3, "pool": 4000}

    steps: int = 5000
    learning_rate: float = 1e-3  # of a head only: their 1e-5 is for a whole encoder
    encoder: str = ""  # the sentence encoder: a directory or hub name; empty: the model's own
    size: int = 64  # of an embedding
    batch: int = 32  # pairs per step; negatives are taken from the other pairs
    negatives: int = 4  # so many of the nearest other texts, for each text

    def build(self, model: Model) -> nn.Module:
        inputs, _ = token_states(model.net, model.task, ["hello"], self.encoder)
        parts: dict[str, nn.Module] = {"scope": Scope(inputs.shape[-1], self.size)}
        if self.generates:
            parts["counterfactual"] = Counterfactual()
        return nn.ModuleDict(parts)

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(learner.parameters(), lr=self.learning_rate)

    def loss(self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random) -> Tensor:
        """Binary cross-entropy: rephrasings are in scope, the nearest other texts are not."""
        pairs = edits.pairs(rng, self.batch)
        n = len(pairs)
        texts = [text for text, _ in pairs] + [other for _, other in pairs]
        scope = learner["scope"]
        embedded = scope(*token_states(model.net, model.task, texts, self.encoder))
        distance = torch.cdist(embedded[n:], embedded[:n]).square()  # rephrasings × texts
        own = scope.log_odds(distance.diagonal())
        others = distance.masked_fill(torch.eye(n, dtype=torch.bool, device=distance.device), 1e9)
        near = scope.log_odds(-(-others).topk(min(self.negatives, n - 1)).values)
        loss = F.softplus(-own).mean() + F.softplus(near).mean()
        if self.generates:
            loss = loss + self.copying_loss(model, learner, edits, rng)
        return loss

    def copying_loss(
        self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random
    ) -> Tensor:
        """The counterfactual model's loss on a few edits and their rephrasings.

        In every other one the answer is some words of another text, so that the model learns to
        give any answer.
        """
        pairs = []
        for i in range(16):
            edit = edits.draw(rng, 1)
            answer = edit.answer
            if i % 2:
                words = edit.local_texts[0].split()
                begin = rng.randrange(len(words))
                answer = " ".join(words[begin : begin + rng.randint(1, 8)])
            both = model.task.tokenize([answer, edit.rephrasing], add_special_tokens=False)
            pairs.append(tuple(both.input_ids))
        return learner["counterfactual"](pairs)  # type: ignore[no-any-return]

    def solve(self, model: Model, example: Example) -> CachedAnswer:
        learner = self.learner(model)
        scope = learner["scope"]
        with torch.no_grad():
            net = model.unpatched().net
            embedding = scope(*token_states(net, model.task, [example.text], self.encoder))[0]
        counterfactual = learner["counterfactual"].state_dict() if self.generates else {}
        return CachedAnswer(
            example=example,
            editor=self.name,
            answer=model.task.canonical(example.answer),
            embedding=embedding,
            scope=scope.state_dict(),
            counterfactual=counterfactual,
            encoder=self.encoder,
        )


@dataclass
class Serac(Sera):
    """SERA with a counterfactual model."""

    name: ClassVar[str] = "serac"
    generates: ClassVar[bool] = True
