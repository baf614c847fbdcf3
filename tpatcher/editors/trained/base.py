"""What the trained editors share: training that shows progress, can be stopped and resumed."""

import json
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from rich.progress import track
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from tpatcher import files
from tpatcher.editors.base import Editor
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.errors import BadInput, Damaged, NotFitted, WrongBase
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import descend

TENSORS = "editor.safetensors"
OPTIMIZER = "optimizer/"  # begins the names of the optimizer's tensors


@dataclass
class Trained(Editor):
    """An editor with a network of its own, the learner, trained on edits of the initial model.

    Defaults are those of the method's paper.
    """

    SMALL: ClassVar[dict[str, Any]]  # knobs that train within minutes, on few million weights
    clip: ClassVar[float | None] = None  # the largest norm of a gradient

    steps: int = 10_000
    pool: int = 10_000  # examples that training edits are drawn from, at most
    # directory to save to and resume from
    checkpoint: Path | None = field(default=None, repr=False)
    checkpoint_every: int = 100
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

    def after_step(self, learner: Any, step: int) -> None:
        """A hook for what a method changes while training goes on."""

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """Train on the initial model; with a checkpoint, go on where an earlier run stopped."""
        model = model.unpatched()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            learner = self.build(model).to(model.net.device)
        optimizer = self.optimizer(learner)
        self.trained_for = model.base.fingerprint
        done = self._resume(learner, optimizer)
        if done < self.steps:
            edits = TrainingEdits(model, examples, self.pool, self.seed)
            title, hidden = f"training {self.name}", not self.progress
            for step in track(range(done, self.steps), title, transient=True, disable=hidden):
                # seeded by the step, so that a resumed run draws the same
                rng = random.Random(f"{self.seed} {step}")
                descend(self.loss(model, learner, edits, rng), optimizer, self.clip)
                self.after_step(learner, step)
                # only whole steps are saved: an interrupted one is taken again
                if (step + 1) % self.checkpoint_every == 0 or step + 1 == self.steps:
                    self._save_checkpoint(learner, optimizer, step + 1)
        self.state = {k: v.detach().cpu().clone() for k, v in learner.state_dict().items()}
        return self

    def learner(self, model: Model) -> Any:
        """The trained learner, ready for edits of this model."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: call fit(model, examples) first")
        if self.trained_for != model.base.fingerprint:
            raise WrongBase(
                f"this {self.name} was trained for the model {self.trained_for}, but "
                f"{model.base.name!r} is {model.base.fingerprint}"
            )
        with torch.random.fork_rng():
            learner = self.build(model.unpatched()).to(model.net.device)
        learner.load_state_dict(self.state)
        return learner.eval()

    def fit_key(self) -> dict[str, Any]:
        """All knobs, and the fingerprint of the model once there is one."""
        return {**self.knobs(), "base": self.trained_for}

    def save(self, directory: str | Path) -> None:
        """Save the knobs and the trained learner."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: there is nothing to save")
        self._write(Path(directory), dict(self.state), self.steps)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load what `save` wrote, or a finished checkpoint."""
        about, state, _ = _read(Path(directory))
        if about["editor"] != cls.name:
            raise BadInput(f"{directory} holds {about['editor']!r}, not {cls.name!r}")
        knobs = dict(about["settings"])
        return cls(trained_for=knobs.pop("base"), state=state, **knobs)

    def _save_checkpoint(self, learner: Any, optimizer: torch.optim.Optimizer, done: int) -> None:
        if self.checkpoint is None:
            return
        tensors = dict(learner.state_dict())
        for i, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"{OPTIMIZER}{i}/{k}": torch.as_tensor(v) for k, v in slots.items()}
        self._write(Path(self.checkpoint), tensors, done)

    def _write(self, path: Path, tensors: dict[str, Tensor], done: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        about = {"editor": self.name, "settings": self.fit_key(), "done": done}
        blob = save_tensors(
            {k: t.detach().cpu().clone().contiguous() for k, t in tensors.items()},
            metadata={"tpatcher": json.dumps(about)},
        )
        # one file, so that knobs and tensors always agree
        files.write_atomic(path / TENSORS, blob)

    def _resume(self, learner: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load the checkpoint, if there is one, and return the steps that it has done."""
        if self.checkpoint is None or not (Path(self.checkpoint) / TENSORS).exists():
            return 0
        about, state, slots = _read(Path(self.checkpoint))
        mine = json.loads(json.dumps({**self.fit_key(), "steps": 0}))
        if about["editor"] != self.name or {**about["settings"], "steps": 0} != mine:
            raise BadInput(
                f"{self.checkpoint} was begun with other settings or for another model; remove it "
                "to begin again, or give another directory"
            )
        learner.load_state_dict(state)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
        return int(about["done"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[int, dict[str, Tensor]]]:
    """What is saved in a directory: metadata, the learner's state, the optimizer's by parameter."""
    file = path / TENSORS
    if not file.is_file():
        raise BadInput(f"{path} holds no editor: it has no {TENSORS}")
    try:
        blob = file.read_bytes()
        about, tensors = files.safetensors_metadata(blob), load_tensors(blob)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{file} cannot be read: {error}") from error
    slots: dict[int, dict[str, Tensor]] = {}
    for name in [name for name in tensors if name.startswith(OPTIMIZER)]:
        _, i, key = name.split("/")
        slots.setdefault(int(i), {})[key] = tensors.pop(name)
    return about, tensors, slots
