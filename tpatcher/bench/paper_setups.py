"""The paper's two setups from its data alone: an f0 that is not there yet is trained first."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tpatcher.bench.setup import Kind, Setup
from tpatcher.checkpoints.train import TaskName, train
from tpatcher.data import dataset

# the task, the base model, and how many layers of it could be patched (BART: of its decoder)
PAPER: dict[str, tuple[Kind, TaskName, str, int]] = {
    "fever": ("fc", "classify", "bert-base-uncased", 12),
    "zsre": ("qa", "seq2seq", "facebook/bart-base", 6),
}


def paper_setups(
    path: Path,
    out: Path,
    console: Console,
    *,
    bases: Sequence[str] = (),
    device: str | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
) -> list[Setup]:
    """FEVER and zsRE from one folder, with models in `out`; a dry run trains none.

    `bases` are the models to begin with, of both tasks, if not the paper's.
    """
    found = []
    for i, (name, (kind, task, base, n_layers)) in enumerate(PAPER.items()):
        folder = out / "models" / name
        if folder.exists():
            found.append(Setup.open(str(folder), name, path, skip_bad=skip_bad))
            continue
        base = bases[i] if bases else base
        console.print(f"{name}: f0 is to be trained from {base}, to {folder}", highlight=False)
        if dry_run:
            found.append(Setup(kind, name, str(folder), n_layers, path, skip_bad=skip_bad))
            continue
        data = dataset(name, path, skip_bad=skip_bad)
        train(base, data, task, folder, device=_for_training(device))
        found.append(Setup.open(str(folder), name, path, skip_bad=skip_bad))
    return found


def _for_training(device: str | None) -> str | None:
    """Training knows the CPU and the first GPU; whatever else was asked for, it finds its own."""
    return device if device in ("cpu", "cuda") else None
