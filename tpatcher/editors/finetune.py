"""Fine-tuning on the mistake, FT and FT+KL (Zhu et al., Modifying Memories in Transformer Models,
2020; Sinitsin et al., Editable Neural Networks, ICLR 2020), as the T-Patcher paper's appendix runs
them.

FT(all) trains every weight matrix of the layers, FT(last) those of the last layer, attention and
feed-forward alike. Biases, norms, embeddings, pooler and head stay as they are, as in its code (its
text says "all parameters"). +KL adds KL(f_0 ‖ f) on ordinary examples and past edits to the loss.
Not as in its code: no dropout, and so one copy of the mistake in a batch instead of eight; no
smoothed labels; the ordinary examples are drawn once per edit, there at every step.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from tpatcher.batches import batches
from tpatcher.editors.base import Editor
from tpatcher.errors import NotFitted
from tpatcher.example import Example, text_of
from tpatcher.models.model import Model
from tpatcher.models.traces import targets_to_follow
from tpatcher.models.training import cross_entropy, descend, force, kl, logits, trainable
from tpatcher.nets.tasks import TeacherForced
from tpatcher.patches.base import Patch
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.weights import Weights, matrices


@dataclass
class FineTune(Editor):
    """Adam on the mistake until the model, really run, answers it rightly."""

    layers: ClassVar[Literal["last", "all"]]
    constrained: ClassVar[bool] = False  # whether the KL term is added

    learning_rate: float = 1e-5
    steps: int = 2000
    kl_weight: float = 1.0
    kl_batch: int = 512  # memory examples, drawn once per edit
    kl_past: int = 100  # past edits at most
    reference: Literal["initial", "before"] = "initial"  # KL is taken to f_0, or to f_{t-1}
    seed: int = 0
    memory: Sequence[str | Example] = field(default=(), repr=False)

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """Keep the examples for the KL term; fine-tuning without it needs none."""
        self.memory = list(examples)
        return self

    def solve(self, model: Model, example: Example) -> Patch:
        net, fresh = trainable(model, list(matrices(model.net, self.layers)))
        anchor = self.anchor(model, example) if self.constrained else None
        tuned = list(fresh.values())
        certificate = tune(model, net, tuned, example, self.learning_rate, self.steps, anchor)
        return Weights(example=example, editor=self.name, certificate=certificate, values=fresh)

    def anchor(self, model: Model, example: Example) -> "KLAnchor":
        """A batch of the memory and past edits, without the example itself."""
        if not self.memory:
            raise NotFitted("the KL term needs ordinary examples: call fit(model, examples) first")
        draw = random.Random(f"{self.seed} {example.text}")
        known = [i for i in self.memory if text_of(i) != example.text]
        past = [p.example for p in model.patches if p.example and p.example.text != example.text]
        items = draw.sample(known, min(self.kl_batch, len(known)))
        items += draw.sample(past, min(self.kl_past, len(past)))
        reference = model.unpatched() if self.reference == "initial" else model.twin()
        return KLAnchor(model, reference, items, self.kl_weight)


def tune(
    model: Model,
    net: nn.Module,
    parameters: Sequence[nn.Parameter],
    example: Example,
    learning_rate: float,
    steps: int,
    anchor: "KLAnchor | None" = None,
) -> Certificate:
    """Train parameters of a net until it answers rightly; certifies if it does, and the steps.

    The net is really run only once its logits along the answer prefer every token of it.
    """
    adam = torch.optim.Adam(parameters, lr=learning_rate)
    forced = force(model, [example.text], [example.answer])
    target = forced.tokens.to(model.net.device)
    for step in range(steps + 1):
        current = logits(model, net, forced)
        best = model.task.as_decoded(model.net, forced, current.detach()).argmax(-1)
        if bool((best == target).all()):
            with torch.inference_mode():
                answer = model.task.answer(net, [example.text])[0]  # type: ignore[arg-type]
            if model.accepts(example, answer):
                return Certificate(fixed=True, steps=step)
        if step == steps:
            break
        loss = cross_entropy(current, forced)
        if anchor is not None:
            loss = loss + anchor(net)
        descend(loss, adam)
    return Certificate(fixed=False, steps=steps)


class KLAnchor:
    """Examples whose answers should stay, with the reference model's logits for them."""

    def __init__(
        self, model: Model, reference: Model, items: Sequence[str | Example], weight: float = 1.0
    ) -> None:
        self.model, self.weight = model, weight
        self.parts: list[tuple[TeacherForced, Tensor]] = []
        for part in batches(sorted(items, key=lambda i: len(text_of(i))), 64):  # little padding
            forced = model.task.force(list(map(text_of, part)), targets_to_follow(reference, part))
            with torch.no_grad():
                self.parts.append((forced, logits(model, reference.net, forced)))
        self.positions = sum(len(forced.row) for forced, _ in self.parts)

    def __call__(self, net: nn.Module) -> Tensor:
        """KL(reference ‖ net), averaged over all answer positions, times the weight."""
        terms = [
            kl(reference, logits(self.model, net, forced)) * len(forced.row) / self.positions
            for forced, reference in self.parts
        ]
        return self.weight * torch.stack(terms).sum()


@dataclass
class FTLast(FineTune):
    """FT(last)."""

    name: ClassVar[str] = "ft-last"
    layers: ClassVar[Literal["last", "all"]] = "last"


@dataclass
class FTAll(FineTune):
    """FT(all)."""

    name: ClassVar[str] = "ft-all"
    layers: ClassVar[Literal["last", "all"]] = "all"


@dataclass
class FTLastKL(FTLast):
    """FT(last)+KL."""

    name: ClassVar[str] = "ft-last-kl"
    constrained: ClassVar[bool] = True


@dataclass
class FTAllKL(FTAll):
    """FT(all)+KL."""

    name: ClassVar[str] = "ft-all-kl"
    constrained: ClassVar[bool] = True
