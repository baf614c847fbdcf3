"""SERAC (Mitchell et al., Memory-Based Model Editing at Scale, ICML 2022), and SERA, the T-Patcher
paper's variant of it: edits are kept in a cache beside the model.

A scope classifier decides whether a text asks what a cached edit was about. If so, SERA gives the
cached answer itself, and SERAC lets a small counterfactual model give it, which reads the edit and
the text; if not, the edited model answers.

As in the paper: a sentence encoder (DistilBERT) is trained end to end, without dropout; a text is
in scope if exp(−d) > ½, d being the squared distance of its embedding to the edit's; binary
cross-entropy on rephrasings and other texts, hard ones among them; the counterfactual model is a
small one of the edited model's family and reads "edit, its answer, text"; both are trained at once
by Adam at 1e-5, the best on held-out edits is kept. Not as there: an embedding is the mean of all
tokens (theirs: the first token), and of the edit's text without its answer, so that an edit is
always in its own scope; hard negatives share a rare word (theirs: are near to a sentence encoder)
and are taken from the batch. Without a named encoder, as in `SMALL`, a copy of the edited model's
own is trained; without a named counterfactual model, one made of the edited model's first layers.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from tpatcher.editors.trained.base import Trained
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.models.loading import AUTO
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy
from tpatcher.nets import sentences
from tpatcher.nets.tasks import Task
from tpatcher.patches import companions, sentence_encoder
from tpatcher.patches.cached_answer import CachedAnswer, with_edit

DISTILBERT = "distilbert/distilbert-base-cased"
# what configs call the number of their layers
DEPTHS = (
    "num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers",
    "n_layer",
)  # fmt: skip


class Companions(nn.ModuleDict):
    """The learner: nets that are trained without dropout."""

    def train(self, mode: bool = True) -> Self:
        return super().train(False)


@dataclass
class Sera(Trained):
    """A cache with a scope classifier, trained on rephrasings against the nearest other texts."""

    name: ClassVar[str] = "sera"
    SMALL: ClassVar[dict[str, Any]] = {
        "steps": 600,
        "seconds": 1800.0,
        "check_every": 50,
        "validation": 128,
        "patience": 150,
        "learning_rate": 3e-5,
        "encoder": "",
        "batch": 16,
    }

    steps: int = 100_000
    patience: int | None = 4000
    learning_rate: float = 1e-5
    encoder: str = DISTILBERT  # a directory or hub name; empty: a copy of the edited model's own
    batch: int = 10  # pairs per step; negatives are taken from the other pairs
    negatives: int = 1  # so many of the nearest other texts, for each text
    names: dict[str, str] = field(default_factory=dict, init=False, repr=False)  # see `attach`

    def build(self, model: Model) -> Companions:
        if self.encoder:
            body = sentences.load(self.encoder)[0]
        else:
            body = copy.deepcopy(sentence_encoder.own(model.net))
        return Companions({"scope": body.float().requires_grad_(True)}).train()

    def tokenizers(self, model: Model) -> dict[str, Any]:
        """The tokenizers of the learner's nets; None: the edited model's."""
        return {"scope": _tokenizer(self.encoder) if self.encoder else None}

    def fit(
        self,
        model: Model,
        examples: Sequence[str | Example],
        held_out: Sequence[str | Example] = (),
    ) -> Self:
        self.names = {}
        super().fit(model, examples, held_out)
        self.attach(model)
        return self

    def attach(self, model: Model) -> None:
        """Make the trained nets known to this process, which patches of this editor name."""
        if not self.names:
            learner, tokenizers = self.learner(model), self.tokenizers(model)
            for part, net in learner.items():
                self.names[part] = companions.keep(net, tokenizers[part])

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(learner.parameters(), lr=self.learning_rate)

    def loss(self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random) -> Tensor:
        """Binary cross-entropy: rephrasings are in scope, the nearest other texts are not."""
        pairs = edits.pairs(rng, self.batch)
        texts = [e.text for e, _ in pairs] + [rephrasing for _, rephrasing in pairs]
        tokenizer = self.tokenizers(model)["scope"]
        layers, mask = sentence_encoder.run(learner["scope"], tokenizer, model.task, texts)
        embedded = sentences.mean(layers[-1], mask)
        cached, asked = embedded[: len(pairs)], embedded[len(pairs) :]
        distance = (asked[:, None] - cached).square().sum(-1)
        own = torch.eye(len(pairs), dtype=torch.bool, device=distance.device)
        others = distance.masked_fill(own, torch.inf)
        near = (-others).topk(min(self.negatives, len(pairs) - 1)).values  # -d, in scope if exp
        outside = -torch.log(-torch.expm1(near.clamp(max=-1e-4)))
        return distance.diagonal().mean() + outside.mean()

    def check(self, model: Model, learner: Any, edits: TrainingEdits) -> float:
        batches = range(max(1, self.validation // self.batch))
        rngs = (random.Random(f"{self.seed} check {i}") for i in batches)
        return fmean(float(self.loss(model, learner, edits, rng)) for rng in rngs)

    def solve(self, model: Model, example: Example) -> CachedAnswer:
        self.check_trained_for(model)
        self.attach(model)
        net, encoder = model.unpatched().net, self.names["scope"]
        layers, mask = sentence_encoder.states(net, model.task, [example.text], encoder)
        return CachedAnswer(
            example=example,
            editor=self.name,
            answer=model.task.canonical(example.answer),
            embedding=sentences.mean(layers[-1], mask)[0],
            encoder=encoder,
            counterfactual=self.names.get("counterfactual", ""),
        )


@dataclass
class Serac(Sera):
    """SERA with a counterfactual model."""

    name: ClassVar[str] = "serac"
    SMALL: ClassVar[dict[str, Any]] = {**Sera.SMALL, "counterfactual_rate": 3e-4}

    counterfactual: str = ""  # a directory or hub name; empty: the edited model's first layers
    layers: int = 2  # so many of those
    counterfactual_rate: float = 1e-5  # its learning rate

    def build(self, model: Model) -> Companions:
        parts = super().build(model)
        net = _load(self.counterfactual, model) if self.counterfactual else None
        net = net or shallow(model.net, self.layers)
        parts["counterfactual"] = net.float().requires_grad_(True)
        return parts.train()

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        words = {
            "params": [*learner["counterfactual"].parameters()],
            "lr": self.counterfactual_rate,
        }
        groups: list[dict[str, Any]] = [{"params": [*learner["scope"].parameters()]}, words]
        return torch.optim.Adam(groups, lr=self.learning_rate)

    def tokenizers(self, model: Model) -> dict[str, Any]:
        mine = _tokenizer(self.counterfactual) if self.counterfactual else None
        return {**super().tokenizers(model), "counterfactual": mine}

    def loss(self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random) -> Tensor:
        """The scope's loss, and the counterfactual model's on edits and their rephrasings."""
        scope = super().loss(model, learner, edits, rng)
        net, tokenizer = learner["counterfactual"], self.tokenizers(model)["counterfactual"]
        task: Task = type(model.task)(net, tokenizer or model.tokenizer)
        drawn = edits.draw(rng, self.batch, 0)
        texts = [with_edit(e.text, e.answer, e.rephrasing) for e in drawn]
        targets = [task.target(text, e.answer) for text, e in zip(texts, drawn, strict=True)]
        forced = task.force(texts, targets)
        return scope + cross_entropy(task.logits(net(**forced.on(net.device)), forced), forced)


def shallow(net: PreTrainedModel, layers: int) -> PreTrainedModel:
    """A net like this one, with its own weights, but only the first layers of each stack."""
    config = copy.deepcopy(net.config)
    for name in DEPTHS:
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(layers, getattr(config, name)))
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    made = type(net)(config)
    sizes = {name: tensor.shape for name, tensor in made.state_dict().items()}
    fitting = {k: v for k, v in net.state_dict().items() if sizes.get(k) == v.shape}
    made.load_state_dict(fitting, strict=False)
    if net.can_generate():
        made.generation_config = copy.deepcopy(net.generation_config)
    return made.to(net.device)  # type: ignore[arg-type]


def _load(name: str, model: Model) -> Any:
    """The counterfactual model of this name, for the task of the edited one."""
    try:
        return AUTO[model.task.name].from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load the counterfactual model {name!r}: {error}") from error


@cache
def _tokenizer(name: str) -> Any:
    """The tokenizer of a directory or hub name."""
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
