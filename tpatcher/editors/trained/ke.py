"""KE, KnowledgeEditor (De Cao et al., Editing Factual Knowledge in Language Models, EMNLP 2021).

An LSTM reads the edit, "model's answer >> wanted answer || text". From its state, small networks
make for every weight matrix W with gradient G a gated gradient, σ(η)·(G ⊙ a + b), where a and b
have rank one; that is added to W. Training minimises the edit's loss under the constraint that KL
to the initial model stays below a margin, which shrinks at each check on held-out edits of which
nine of ten succeed.

As in the paper and its code: the networks, what they read and its length, centred RMSprop, linear
warm-up and decay, the multiplier α with its own rate, margins by task, smoothed labels for
generated answers, the learner that is best on held-out edits is kept, "+ loop" repeats an edit
until it succeeds, at most five times. The T-Patcher paper took the released networks: `released`
reads them. Not as there: an edit is asked at its text and at a rephrasing (they did so for
generated answers only); 3 local texts a step, as their code has it if nothing is said (their runs:
255 for labels, with 50,000 steps, and 62 for generated answers); what an edit teaches where the
model is right, see training_edits.py. `SMALL` is our own, for half an hour of one core: several
edits a step, a wider margin, and the gradient times 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, rnn

from tpatcher.editors.trained.hypernetwork import Factors, HyperEditor, Outcome, sizes
from tpatcher.editors.trained.released_ke import read_released
from tpatcher.editors.trained.training_edits import TrainingEdit, TrainingEdits
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy
from tpatcher.nets.seeded import seeded
from tpatcher.nets.tasks import TeacherForced
from tpatcher.patches.weights import Weights, matrices

SMOOTHING = 0.1  # of the labels, where answers are generated
SUCCEED = 0.9  # the share of held-out edits from which on the margin shrinks
SHRINK = 0.8


@dataclass
class KE(HyperEditor):
    """The gradient, gated by what the edit says."""

    name: ClassVar[str] = "ke"
    edit_knobs: ClassVar[frozenset[str]] = frozenset({"loops"})
    SMALL: ClassVar[dict[str, Any]] = {
        "steps": 400,
        "seconds": 1800.0,
        "check_every": 25,
        "validation": 32,
        "warmup": 40,
        "learning_rate": 1e-3,
        "edits": 8,
        "local": 2,
        "condition": 256,
        "gradient_scale": 100.0,
        "margin": 0.5,
        "margin_least": 0.05,
        "constraint_rate": 0.003,
    }

    steps: int = 200_000
    check_every: int = 1000
    warmup: int = 1000  # steps in which the rates rise; they fall to 0 in those after
    local: int = 3
    learning_rate: float = 3e-4
    constraint_rate: float = 0.1  # learning rate of α, the multiplier of the constraint
    margin: float | None = None  # of KL, at first; None: 0.1, or 0.001 where answers are generated
    margin_least: float | None = None  # None: a hundredth of the first
    max_scale: float = 1.0
    gradient_scale: float = 1.0  # what a short training would otherwise have to learn as a gate
    hidden: int = 128
    condition: int = 1024
    length: int = 32  # tokens of an edit that are read
    loops: int = 1  # 5 is "+ loop": an edit is repeated until it succeeds, at most so often
    released: str = ""  # a file of the networks that De Cao et al. released: nothing is trained

    def names(self, model: Model) -> list[str]:
        return list(matrices(model.net))

    def build(self, model: Model) -> "Learner":
        words = model.net.get_input_embeddings().weight.detach().float()
        shapes = sizes(model.net, self.names(model))
        margin = self._first_margin(model)
        return Learner(words, shapes, self.hidden, self.condition, self.max_scale, margin)

    def _first_margin(self, model: Model) -> float:
        if self.margin is not None:
            return self.margin
        return 1e-3 if model.task.generates else 0.1

    def fit(
        self,
        model: Model,
        examples: Sequence[str | Example],
        held_out: Sequence[str | Example] = (),
    ) -> Self:
        if not self.released:
            return super().fit(model, examples, held_out)
        with seeded(self.seed, model.net.device):
            learner = self.build(model.unpatched())
        self.state = read_released(self.released, model, learner)
        self.trained_for = model.base.fingerprint
        return self

    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        rest = [p for n, p in learner.named_parameters() if n != "alpha"]
        alpha = {"params": [learner.alpha], "lr": self.constraint_rate}
        groups: list[dict[str, Any]] = [{"params": rest}, alpha]
        return torch.optim.RMSprop(groups, lr=self.learning_rate, centered=True)

    def rate(self, step: int) -> float:
        """Linear warm-up, then linear decay to 0."""
        if step < self.warmup:
            return step / self.warmup
        return max(0.0, (self.steps - step) / max(1, self.steps - self.warmup))

    def change(
        self, model: Model, learner: Any, factors: Factors, edits: Sequence[TrainingEdit]
    ) -> Factors:
        batch = model.task.tokenize(
            [f"{e.model_answer} >> {e.answer} || {e.text}" for e in edits],
            return_tensors="pt",
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=min(self.length, model.task.context),
        )
        ids, lengths = batch["input_ids"].to(model.net.device), batch["attention_mask"].sum(-1)
        scaled = {n: (u, delta * self.gradient_scale) for n, (u, delta) in factors.items()}
        return learner(ids, lengths, scaled)  # type: ignore[no-any-return]

    def asked(self, edit: TrainingEdit) -> list[str]:
        return [edit.text, edit.rephrasing]

    def edit_loss(self, model: Model, logits: Tensor, asked: TeacherForced) -> Tensor:
        return cross_entropy(logits, asked, SMOOTHING if model.task.generates else 0.0)

    def objective(self, learner: Any, outcome: Outcome) -> Tensor:
        """l_e + α·(KL − margin): minimised over the learner, maximised over α."""
        excess = outcome.local_kl - learner.margin
        return outcome.edit_loss + learner.alpha.detach() * excess - learner.alpha * excess.detach()

    def after_step(self, learner: Any, step: int) -> None:
        """Keep α ≥ 0."""
        learner.alpha.data = learner.alpha.data.clamp(min=0)

    def check(self, model: Model, learner: Any, edits: TrainingEdits) -> float:
        """The share of wrong answers, of edits and local texts; the margin may shrink here."""
        outcomes = self.outcomes(model, learner, edits)
        right = torch.cat([outcome.right for outcome in outcomes])
        kept = torch.cat([outcome.kept for outcome in outcomes])
        if float(right.mean()) > SUCCEED:
            least = self.margin_least
            least = self._first_margin(model) / 100 if least is None else least
            learner.margin = (learner.margin * SHRINK).clamp(min=least)
        return 1 - float(torch.cat([right, kept]).mean())

    def solve(self, model: Model, example: Example) -> Weights:
        patch = super().solve(model, example)
        for _ in range(self.loops - 1):
            trial = model.twin()
            trial.push(patch)
            if trial.correct([example])[0]:
                break
            patch = super().solve(trial, example)
        return patch


class Learner(nn.Module):
    """The LSTM that reads the edit, the gates of every matrix, and the state of the constraint."""

    def __init__(
        self,
        words: Tensor,
        sizes: Mapping[str, tuple[int, int]],
        hidden: int,
        condition: int,
        max_scale: float,
        margin: float,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(words.clone(), freeze=False)
        self.lstm = nn.LSTM(words.shape[1], hidden, bidirectional=True, batch_first=True)
        self.summary = nn.Linear(2 * hidden, condition)
        self.names = {name: str(i) for i, name in enumerate(sizes)}
        self.gates = nn.ModuleDict(
            {self.names[n]: Gates(*size, condition, hidden, max_scale) for n, size in sizes.items()}
        )
        self.alpha = nn.Parameter(torch.ones(()))
        self.margin: Tensor
        self.register_buffer("margin", torch.tensor(margin))

    def forward(self, ids: Tensor, lengths: Tensor, factors: Factors) -> Factors:
        """The gated factors, from the tokens (B, T) of the edits and the gradients' factors."""
        packed = rnn.pack_padded_sequence(
            self.words(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.lstm(packed)  # (2, B, hidden): one for each direction
        state = self.summary(last.transpose(0, 1).flatten(1)).tanh()
        return {n: self.gates[self.names[n]](state, *pair) for n, pair in factors.items()}


class Gates(nn.Module):
    """Makes the gates of one matrix from the state of the LSTM."""

    def __init__(self, ins: int, outs: int, condition: int, hidden: int, max_scale: float) -> None:
        super().__init__()
        self.sizes, self.max_scale = [ins, outs, ins, outs, 1], max_scale
        normed = parametrizations.weight_norm
        first, second = nn.Linear(condition, hidden), nn.Linear(hidden, sum(self.sizes))
        self.layers = nn.Sequential(normed(first), nn.Tanh(), normed(second))

    def forward(self, state: Tensor, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of the gated gradient, from those of the gradient (B, T, ·)."""
        u, delta = gated(u, delta, *self.layers(state)[:, None].split(self.sizes, dim=-1))
        return u, self.max_scale * delta


def gated(
    u: Tensor, delta: Tensor, in_a: Tensor, out_a: Tensor, in_b: Tensor, out_b: Tensor, eta: Tensor
) -> tuple[Tensor, Tensor]:
    """The factors of σ(η)·(G ⊙ a + b), where G = Σ δ·uᵀ, a = softmax(out_a)·in_aᵀ and b likewise.

    G ⊙ (r·cᵀ) = Σ (r ⊙ δ)·(c ⊙ u)ᵀ, and b is one more pair of factors.
    """
    more_u = torch.cat([u * in_a, in_b], dim=1)
    more_delta = torch.cat([delta * out_a.softmax(-1), out_b.softmax(-1)], dim=1)
    return more_u, eta.sigmoid() * more_delta
