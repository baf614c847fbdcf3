"""What the trained editors share: training that is checked on held-out edits, stops and resumes."""

import json
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, ClassVar, Self

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from tpatcher.editors.base import Editor
from tpatcher.editors.trained import checkpoint
from tpatcher.editors.trained.checkpoint import Progress
from tpatcher.editors.trained.training_edits import LEAST, TrainingEdits
from tpatcher.errors import BadInput, NotFitted, WrongBase
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import descend
from tpatcher.nets.seeded import seeded

HELD_OUT = 0.1  # share of the examples that is kept for checks where no others are given, at most


@dataclass
class Trained(Editor):
    """An editor with a network of its own, the learner, trained on edits of the initial model.

    Every `check_every` steps the learner is checked on edits that it does not learn from; the one
    with the best check is kept. Defaults are those of the method's paper.
    """

    SMALL: ClassVar[dict[str, Any]]  # knobs that train within half an hour on one core
    clip: ClassVar[float | None] = None  # the largest norm of a gradient
    edit_knobs: ClassVar[frozenset[str]] = frozenset()  # what only edits look at, not training

    steps: int = 10_000  # at most
    seconds: float | None = None  # at most; on a CPU of its work, however busy it is otherwise
    check_every: int = 500  # steps from check to check
    validation: int = 500  # edits of a check
    patience: int | None = None  # steps without a better check after which training ends
    # directory to save to and resume from
    checkpoint: Path | None = field(default=None, repr=False)
    progress: bool = field(default=True, repr=False)
    seed: int = 0
    state: dict[str, Tensor] = field(default_factory=dict, repr=False)  # of the trained learner
    trained_for: str = field(default="", repr=False)  # fingerprint of the model
    version: ClassVar[int] = 2  # 1 knew no checks on held-out edits

    @abstractmethod
    def build(self, model: Model) -> nn.Module:
        """The learner, untrained: what the other methods are given as `learner`."""

    @abstractmethod
    def optimizer(self, learner: Any) -> torch.optim.Optimizer:
        """The optimizer of the learner's parameters."""

    @abstractmethod
    def loss(self, model: Model, learner: Any, edits: TrainingEdits, rng: random.Random) -> Tensor:
        """The loss of one training step."""

    @abstractmethod
    def check(self, model: Model, learner: Any, edits: TrainingEdits) -> float:
        """How bad the learner is on held-out edits: the lower, the better."""

    def rate(self, step: int) -> float:
        """What the learning rates are multiplied by at a step."""
        return 1.0

    def after_step(self, learner: Any, step: int) -> None:
        """A hook for what a method changes while training goes on."""

    def fit(
        self,
        model: Model,
        examples: Sequence[str | Example],
        held_out: Sequence[str | Example] = (),
    ) -> Self:
        """Train on the initial model; with a checkpoint, go on where an earlier run stopped.

        Checks are made on `held_out` (the paper's D_val); without it, on a part of the examples.
        """
        model = model.unpatched()
        with seeded(self.seed, model.net.device):
            learner = self.build(model).to(model.net.device)
        optimizer = self.optimizer(learner)
        self.trained_for = model.base.fingerprint
        progress = self._resume(learner, optimizer)
        if not progress.finished:
            train, held = self._divide(examples, held_out)
            edits, checks = TrainingEdits(model, train), TrainingEdits(model, held)
            self._train(model, learner, optimizer, progress, edits, checks)
        self.state = _copied(learner.state_dict())
        return self

    def _divide(
        self, examples: Sequence[str | Example], held_out: Sequence[str | Example]
    ) -> tuple[Sequence[str | Example], Sequence[str | Example]]:
        """What is trained on, and what is held out."""
        if held_out:
            return examples, held_out
        shuffled = list(examples)
        random.Random(self.seed).shuffle(shuffled)
        n = min(self.validation, int(HELD_OUT * len(shuffled)))
        # of so few examples none can be spared
        return (shuffled[n:], shuffled[:n]) if n >= LEAST else (shuffled, shuffled)

    def _train(
        self,
        model: Model,
        learner: Any,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
        edits: TrainingEdits,
        held_out: TrainingEdits,
    ) -> None:
        """Train until the steps, the seconds or the patience are over; leaves the best learner."""
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        schedule = LambdaLR(optimizer, self.rate, last_epoch=progress.done - 1)
        best = checkpoint.read_best(self.checkpoint) if self.checkpoint and progress.done else {}
        clock = process_time if model.net.device.type == "cpu" else perf_counter
        began = clock() - progress.seconds
        title, hidden = f"training {self.name}", not self.progress
        for step in track(range(progress.done, self.steps), title, transient=True, disable=hidden):
            # seeded by the step, so that a resumed run draws the same
            rng = random.Random(f"{self.seed} {step}")
            descend(self.loss(model, learner, edits, rng), optimizer, self.clip)
            schedule.step()
            self.after_step(learner, step)
            progress.done, progress.seconds = step + 1, clock() - began
            over = progress.done == self.steps
            over = over or (self.seconds is not None and progress.seconds >= self.seconds)
            if progress.done % self.check_every and not over:
                continue
            learner.eval()
            with torch.no_grad():
                score = self.check(model, learner, held_out)
            learner.train()
            if score < progress.best or not best:
                progress.best, progress.best_step = score, progress.done
                best = _copied(learner.state_dict())
                if self.checkpoint is not None:
                    checkpoint.write_best(self.checkpoint, best)
            stale = progress.done - progress.best_step
            if over or (self.patience is not None and stale >= self.patience):
                break
            # only whole steps are saved: an interrupted one is taken again
            self._save(learner.state_dict(), progress, optimizer)
        progress.finished = True
        if best:
            learner.load_state_dict(best)
        self._save(learner.state_dict(), progress)
        if self.checkpoint is not None:
            (self.checkpoint / checkpoint.BEST).unlink(missing_ok=True)

    def learner(self, model: Model) -> Any:
        """The trained learner, ready for edits of this model."""
        self.check_trained_for(model)
        with seeded(self.seed, model.net.device):
            learner = self.build(model.unpatched()).to(model.net.device)
        learner.load_state_dict(self.state)
        return learner.eval()

    def check_trained_for(self, model: Model) -> None:
        """Refuse to edit a model that this editor was not trained for."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: call fit(model, examples) first")
        if self.trained_for != model.base.fingerprint:
            raise WrongBase(
                f"this {self.name} was trained for the model {self.trained_for}, but "
                f"{model.base.name!r} is {model.base.fingerprint}"
            )

    def fit_key(self) -> dict[str, Any]:
        """All knobs that training looks at, and the fingerprint of the model once there is one."""
        knobs = {k: v for k, v in self.knobs().items() if k not in self.edit_knobs}
        return {**knobs, "base": self.trained_for}

    def save(self, directory: str | Path) -> None:
        """Save the knobs and the trained learner."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: there is nothing to save")
        done = Progress(finished=True)
        checkpoint.write(Path(directory), self.name, self.fit_key(), done, self.state)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load what `save` wrote, or a finished checkpoint."""
        saved = checkpoint.read(Path(directory))
        if saved.editor != cls.name:
            raise BadInput(f"{directory} holds {saved.editor!r}, not {cls.name!r}")
        if not saved.progress.finished:
            raise BadInput(
                f"the training in {directory} is at step {saved.progress.done}; finish it with "
                "fit, which goes on from there"
            )
        knobs = dict(saved.settings)
        return cls(trained_for=knobs.pop("base"), state=saved.state, **knobs)

    def _save(
        self,
        state: Mapping[str, Tensor],
        progress: Progress,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        if self.checkpoint is not None:
            settings = self.fit_key()
            checkpoint.write(self.checkpoint, self.name, settings, progress, state, optimizer)

    def _resume(self, learner: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the checkpoint, if there is one, and return how far it has come."""
        if self.checkpoint is None or not (self.checkpoint / checkpoint.TENSORS).exists():
            return Progress()
        saved = checkpoint.read(self.checkpoint)
        mine = json.loads(json.dumps(self.fit_key()))
        if saved.editor != self.name or saved.settings != mine:
            raise BadInput(
                f"{self.checkpoint} was begun with other settings or for another model; remove it "
                "to begin again, or give another directory"
            )
        learner.load_state_dict(saved.state)
        if not saved.progress.finished:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": saved.slots})
        return saved.progress


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k: v.detach().cpu().clone() for k, v in state.items()}
