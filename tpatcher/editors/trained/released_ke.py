"""The networks that De Cao et al. released for KE, read from their file.

A file is a Lightning checkpoint, or its state dict alone, also as safetensors. Only tensors are
read (`weights_only`): a pickle that asks for anything else is refused.
"""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tpatcher.errors import BadInput, WrongBase
from tpatcher.models.model import Model

# Names of the released code, and ours.
READER = {
    "condition.embedding.weight": "words.weight",
    "condition.lstm._module.": "lstm.",
    "condition.linear._linear_layers.0.": "summary.",
}
GATES = {
    "0.weight_g": "layers.0.parametrizations.weight.original0",
    "0.weight_v": "layers.0.parametrizations.weight.original1",
    "0.bias": "layers.0.bias",
    "2.weight_g": "layers.2.parametrizations.weight.original0",
    "2.weight_v": "layers.2.parametrizations.weight.original1",
    "2.bias": "layers.2.bias",
}
CONSTRAINT = {"alpha_kl": "alpha", "margin_kl": "margin"}


# What else Lightning writes, hyper-parameters and the state of callbacks, is read as plain dicts.
LIGHTNING = (
    "pytorch_lightning.utilities.parsing.AttributeDict",
    "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
    "pytorch_lightning.callbacks.lr_monitor.LearningRateMonitor",
)


def read_released(path: str | Path, model: Model, learner: Any) -> dict[str, Tensor]:
    """The state of a learner of KE for this model, from a released file."""
    found = _tensors(Path(path))
    wanted = learner.state_dict()
    names = {**CONSTRAINT, **_reader_names(wanted), **_gate_names(model, learner)}
    missing = [theirs for theirs in names if theirs not in found]
    if missing:
        raise WrongBase(
            f"{path} has {len(found)} tensors, but not {missing[0]!r} and {len(missing) - 1} more "
            f"that a KE for {model.name!r} needs: give the file that was trained for this model"
        )
    state = {ours: found[theirs].float() for theirs, ours in names.items()}
    for theirs, ours in names.items():
        if state[ours].shape != wanted[ours].shape:
            raise WrongBase(
                f"{path} holds {theirs} as {tuple(state[ours].shape)}, but a KE for "
                f"{model.name!r} has it as {tuple(wanted[ours].shape)}"
            )
    return state


def _reader_names(wanted: dict[str, Tensor]) -> dict[str, str]:
    """Ours by theirs, of what reads the edit."""
    return {
        f"learner.{theirs}{ours.removeprefix(begin)}": ours
        for theirs, begin in READER.items()
        for ours in wanted
        if ours.startswith(begin)
    }


def _gate_names(model: Model, learner: Any) -> dict[str, str]:
    """Ours by theirs, of the networks of every matrix.

    Theirs have the name of the matrix with underscores; below the head their nets say "model".
    """
    out: dict[str, str] = {}
    for name, number in learner.names.items():
        inside = name.removeprefix(f"{model.net.base_model_prefix}.").replace(".", "_")
        begin = f"learner.conditioners.model_{inside}_conditioner.conditioners."
        out |= {f"{begin}{theirs}": f"gates.{number}.{ours}" for theirs, ours in GATES.items()}
    return out


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, and nothing else of it."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} with a released KE")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        known: list[Any] = [(dict, name) for name in LIGHTNING]
        with torch.serialization.safe_globals(known):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise BadInput(
            f"{path} cannot be read as tensors alone: {error}. Where you trust it, write its "
            "state dict with safetensors and give that file"
        ) from error
    found = found.get("state_dict", found) if isinstance(found, dict) else {}
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}
