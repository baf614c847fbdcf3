"""What training leaves on disk: one file to go on from, the best learner so far beside it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from tpatcher import files
from tpatcher.errors import BadInput, Damaged

TENSORS = "editor.safetensors"
BEST = "best.safetensors"
OPTIMIZER = "optimizer/"  # begins the names of the optimizer's tensors


@dataclass
class Progress:
    """How far training has come."""

    done: int = 0  # steps
    seconds: float = 0.0
    best: float = float("inf")  # the lowest score of a check on what is held out
    best_step: int = 0
    finished: bool = False


@dataclass(frozen=True)
class Saved:
    """What is saved in a directory."""

    editor: str
    settings: dict[str, Any]
    progress: Progress
    state: dict[str, Tensor]  # the learner's
    slots: dict[int, dict[str, Tensor]]  # the optimizer's, by parameter


def write(
    directory: Path,
    editor: str,
    settings: Mapping[str, Any],
    progress: Progress,
    state: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Save a learner and, to go on from, its optimizer: one file, so that all always agree."""
    tensors = dict(state)
    for i, slots in optimizer.state_dict()["state"].items() if optimizer else ():
        tensors |= {f"{OPTIMIZER}{i}/{k}": torch.as_tensor(v) for k, v in slots.items()}
    about = {"editor": editor, "settings": dict(settings), "progress": asdict(progress)}
    _write(directory / TENSORS, tensors, about)


def write_best(directory: Path, state: Mapping[str, Tensor]) -> None:
    """Save the learner of the best check so far."""
    _write(directory / BEST, state, {})


def read_best(directory: Path) -> dict[str, Tensor]:
    """The learner of the best check so far; empty if there was none."""
    return _read(directory / BEST)[1] if (directory / BEST).is_file() else {}


def read(directory: Path) -> Saved:
    """What `write` saved in a directory."""
    if not (directory / TENSORS).is_file():
        raise BadInput(f"{directory} holds no editor: it has no {TENSORS}")
    about, tensors = _read(directory / TENSORS)
    slots: dict[int, dict[str, Tensor]] = {}
    for name in [name for name in tensors if name.startswith(OPTIMIZER)]:
        _, i, key = name.split("/")
        slots.setdefault(int(i), {})[key] = tensors.pop(name)
    try:
        progress = Progress(**about["progress"])
        return Saved(about["editor"], about["settings"], progress, tensors, slots)
    except (KeyError, TypeError) as error:
        raise Damaged(f"{directory / TENSORS} does not say what it holds: {error!r}") from error


def _write(file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    own = {k: t.detach().cpu().clone().contiguous() for k, t in tensors.items()}
    files.write_atomic(file, save_tensors(own, metadata={"tpatcher": json.dumps(about)}))


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        blob = file.read_bytes()
        return files.safetensors_metadata(blob), load_tensors(blob)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{file} cannot be read: {error}") from error
