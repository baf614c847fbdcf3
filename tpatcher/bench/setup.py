"""A model and the data that it is edited on, from the names that a command gives."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tpatcher.data import DATASETS, SkippedLines, dataset
from tpatcher.errors import BadInput
from tpatcher.models.loading import BUILTIN, load
from tpatcher.nets import ffn

Kind = Literal["fc", "qa"]  # fact checking, question answering
PAPER_BETAS = (-3.0, 0.0)  # of GeLU and of ReLU


@dataclass(frozen=True)
class Setup:
    """A model, and the data that it is edited on."""

    kind: Kind
    data: str
    model: str
    n_layers: int  # that could be patched
    path: Path | None = None
    exclude: Path | None = None
    skip_bad: bool = False
    skipped: tuple[str, ...] = ()  # "file:line: reason" of each bad row that is left out
    beta: float = -3.0  # β of the model's activation: the paper's for GeLU if not said

    @classmethod
    def open(
        cls,
        model: str,
        data: str,
        path: Path | None = None,
        exclude: Path | None = None,
        skip_bad: bool = False,
    ) -> "Setup":
        """Load the model to learn what it is; with `skip_bad`, read the data to name bad rows."""
        loaded = load(model)
        kind: Kind = "qa" if loaded.task.generates else "fc"
        bad = _bad_rows(data, path) if skip_bad and path else ()
        beta = ffn.find(loaded.net).beta
        skips = skip_bad and bool(path)
        return cls(kind, data, model, loaded.n_layers, path, exclude, skips, bad, beta)

    @property
    def title(self) -> str:
        what = "Fact checking" if self.kind == "fc" else "Question answering"
        return f"{what}: {self.data}"

    @property
    def notes(self) -> list[str]:
        """What one should know beside the numbers."""
        found = []
        if self.beta not in PAPER_BETAS:
            found.append(
                f"The paper has β for GeLU and ReLU alone. T-Patcher's β for the activation of "
                f"this model, {self.beta:g}, is our own: below it the activation is flat."
            )
        if self.model in BUILTIN:
            found.append(
                "This model was trained with a loss that draws two phrasings of a fact together: "
                "the GR of T-Patcher is higher for it, and no model of the paper had it."
            )
        return found


def builtin_setups() -> list[Setup]:
    """Fact checking and question answering with the models and data of the package."""
    return [Setup.open(name, name) for name in BUILTIN]


def _bad_rows(data: str, path: Path) -> tuple[str, ...]:
    """The rows of a dataset that cannot be used, each as "file:line: reason"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkippedLines)
        dataset(data, path, skip_bad=True)
    skipped = [w.message for w in caught if isinstance(w.message, SkippedLines)]
    return tuple(message for one in skipped for message in one.messages)


def setups(
    data: Sequence[str],
    models: Sequence[str],
    paths: Sequence[Path],
    exclude: Path | None = None,
    skip_bad: bool = False,
) -> list[Setup]:
    """The setups of these names: "builtin" is both, any other needs its model and folder."""
    if list(data) == ["builtin"]:
        if models or paths:
            raise BadInput("builtin brings its own models and data: give no model and no path")
        return builtin_setups()
    if len(models) != len(data):
        raise BadInput(f"{len(data)} datasets need as many models; found {len(models)}")
    folders = list(paths)
    found = []
    for name, model in zip(data, models, strict=True):
        if name not in DATASETS:
            found.append(Setup.open(model, "own", Path(name), skip_bad=skip_bad))
        elif name.startswith("builtin-"):
            found.append(Setup.open(model, name))
        elif folders:
            unseen = exclude if name == "zsre" else None
            found.append(Setup.open(model, name, folders.pop(0), unseen, skip_bad))
        else:
            raise BadInput(f"the dataset {name!r} needs a path, the folder that holds it")
    return found
