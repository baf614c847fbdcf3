"""What the trained editors share: a fit that shows progress, can be stopped and goes on later."""

import json
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from rich.progress import track
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from tpatcher import files
from tpatcher.editors.base import Editor
from tpatcher.editors.trained.training_edits import Lessons
from tpatcher.errors import BadInput, Damaged, NotFitted, WrongBase
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import descend

TENSORS = "editor.safetensors"
OPTIMIZER = "optimizer/"


@dataclass
class Trained(Editor):
    """An editor with weights of its own, trained on edits of the initial model."""

    steps: int = 10_000
    pool: int = 10_000  # examples that lessons are drawn from
    checkpoint: Path | None = None  # a directory: fit saves there, and goes on from there
    checkpoint_every: int = 100
    progress: bool = True
    seed: int = 0
    state: dict[str, Tensor] = field(default_factory=dict, repr=False)  # what was learned
    base: str = ""  # the fingerprint of the model that it was learned for

    @abstractmethod
    def build(self, model: Model) -> nn.Module:
        """What is to be trained, untrained."""

    @abstractmethod
    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        """How it is trained."""

    @abstractmethod
    def loss(
        self, model: Model, learner: nn.Module, lessons: Lessons, rng: random.Random
    ) -> Tensor:
        """The loss of one step."""

    def after_step(self, learner: nn.Module, step: int) -> None:
        """Whatever a method changes as training goes on."""

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """Train on the initial model; with a checkpoint directory, go on where a run stopped."""
        model = model.unpatched()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            learner = self.build(model).to(model.net.device)
        optimizer = self.optimizer(learner)
        self.base = model.base.fingerprint
        done = self._resume(learner, optimizer)
        if done < self.steps:
            lessons = Lessons(model, examples, self.pool, self.seed)
            rounds = track(
                range(done, self.steps), f"training {self.name}", transient=True,
                disable=not self.progress,
            )  # fmt: skip
            for step in rounds:
                # drawn anew from step to step, so that a resumed run draws the same
                rng = random.Random(f"{self.seed} {step}")
                descend(self.loss(model, learner, lessons, rng), optimizer, self.clip)
                self.after_step(learner, step)
                # only whole steps are kept: one that is interrupted is taken again
                if (step + 1) % self.checkpoint_every == 0 or step + 1 == self.steps:
                    self._keep(learner, optimizer, step + 1)
        self.state = {k: v.detach().cpu().clone() for k, v in learner.state_dict().items()}
        return self

    @property
    def clip(self) -> float | None:
        """The largest norm of a gradient."""
        return None

    def learned(self, model: Model) -> nn.Module:
        """The trained part, for this model."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: call fit(model, examples) first")
        if self.base != model.base.fingerprint:
            raise WrongBase(
                f"this {self.name} was trained for the model {self.base}, but {model.base.name!r} "
                f"is {model.base.fingerprint}"
            )
        with torch.random.fork_rng():
            learner = self.build(model.unpatched()).to(model.net.device)
        learner.load_state_dict(self.state)
        return learner.eval()

    def settings(self) -> dict[str, Any]:
        """The fields as JSON: everything but what was learned and where it is kept."""
        names = [f.name for f in fields(self) if f.name not in ("state", "checkpoint", "progress")]
        return {name: getattr(self, name) for name in names}

    def save(self, directory: str | Path) -> None:
        """Save settings and what was learned."""
        if not self.state:
            raise NotFitted(f"{self.name} is not trained: there is nothing to save")
        self._write(Path(directory), dict(self.state), self.steps)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load what `save` wrote, or a finished checkpoint."""
        about, tensors = read(Path(directory))
        if about["editor"] != cls.name:
            raise BadInput(f"{directory} holds {about['editor']!r}, not {cls.name!r}")
        state = {k: t for k, t in tensors.items() if not k.startswith(OPTIMIZER)}
        return cls(**about["settings"], state=state)

    def _keep(self, learner: nn.Module, optimizer: torch.optim.Optimizer, done: int) -> None:
        if self.checkpoint is None:
            return
        tensors = dict(learner.state_dict())
        for i, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"{OPTIMIZER}{i}/{k}": torch.as_tensor(v) for k, v in slots.items()}
        self._write(Path(self.checkpoint), tensors, done)

    def _write(self, path: Path, tensors: dict[str, Tensor], done: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        about = {"editor": self.name, "settings": self.settings(), "done": done}
        blob = save_tensors(
            {k: t.detach().cpu().clone().contiguous() for k, t in tensors.items()},
            metadata={"tpatcher": json.dumps(about)},
        )
        files.replace(path / TENSORS, blob)  # one file, so that settings and tensors always agree

    def _resume(self, learner: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load a checkpoint, if there is one of these settings; the steps already done."""
        if self.checkpoint is None or not (Path(self.checkpoint) / TENSORS).exists():
            return 0
        about, tensors = read(Path(self.checkpoint))
        mine = json.loads(json.dumps({**self.settings(), "steps": 0}))
        if about["editor"] != self.name or {**about["settings"], "steps": 0} != mine:
            raise BadInput(
                f"{self.checkpoint} was begun with other settings or for another model; remove it "
                "to begin again, or give another directory"
            )
        learner.load_state_dict({k: t for k, t in tensors.items() if not k.startswith(OPTIMIZER)})
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(OPTIMIZER):
                _, i, key = name.split("/")
                slots.setdefault(int(i), {})[key] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
        return int(about["done"])


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What an editor's directory holds."""
    file = path / TENSORS
    if not file.is_file():
        raise BadInput(f"{path} holds no editor: it has no {TENSORS}")
    try:
        blob = file.read_bytes()
        size = int.from_bytes(blob[:8], "little")
        about = json.loads(json.loads(blob[8 : 8 + size])["__metadata__"]["tpatcher"])
        return about, load_tensors(blob)
    except (SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{file} cannot be read: {error}") from error
