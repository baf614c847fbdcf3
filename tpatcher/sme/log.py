"""The steps of a run, and where they are kept on disk: a run that was killed goes on from there."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tpatcher import files
from tpatcher.errors import BadInput, Damaged
from tpatcher.patches import from_bytes
from tpatcher.patches.base import Patch
from tpatcher.patches.weights import Weights


@dataclass(frozen=True)
class Step:
    """One mistake, and the model after it was edited: f_t of Eq. 2."""

    index: int  # the example's place in the stream
    text: str
    answer: str
    before: str  # what the model said
    fixed: bool  # f_t(x_t) = y_t
    rephrasings: list[bool]  # the same for each of its rephrasings
    neurons: int  # added by this edit
    growth: float  # all neurons added so far, in % of the model's parameters
    seconds: float
    patch: str | None  # None if the editor found none
    error: str | None = None
    # right now, and right before any edit (of "edits": made so far; of probes, by their kind: kept,
    # and asked); empty where not measured
    retained: dict[str, tuple[int, int]] = field(default_factory=dict)
    megabytes: float | None = None  # at the edit's peak; None if the OS does not report it


class Log:
    """The steps of one run on disk: a header, a line per step, and every patch in its own file.

    Of patches that hold weights, the newest and every `checkpoint_every`-th are whole.
    """

    def __init__(self, directory: Path, checkpoint_every: int = 20) -> None:
        self.checkpoint_every, self.weights = checkpoint_every, 0
        self.whole: dict[str, Path] = {}  # files of weights, by patch, that are no checkpoints
        self.directory, self.path = directory, directory / "steps.jsonl"
        self.patches = directory / "patches"
        self.patches.mkdir(parents=True, exist_ok=True)

    def begin(self, header: dict[str, Any]) -> list[Step]:
        """Start a log, or return the steps that an earlier, killed run has written to it."""
        if not self.path.exists():
            files.write_atomic(self.path, (json.dumps(header) + "\n").encode())
            return []
        whole, end, half = self.path.read_bytes().rpartition(b"\n")
        if half:  # the kill came while a line was written
            files.write_atomic(self.path, whole + end)
        found, steps = read(self.directory)
        if found != header:
            other = [k for k in header if found.get(k) != header[k]]
            raise BadInput(
                f"{self.path} is of another run ({', '.join(other)} differ): "
                "give another directory, or remove it"
            )
        return steps

    def patch(self, step: Step) -> Patch | None:
        """The patch that a step left behind."""
        if step.patch is None:
            return None
        path = self._file(step)
        try:
            patch = from_bytes(path.read_bytes())
        except (OSError, Damaged) as error:
            raise Damaged(f"{path} is missing or damaged, the run cannot go on: {error}") from error
        self._count(patch, path)
        return patch

    def write(self, step: Step, patch: Patch | None) -> None:
        """Keep a step; its patch first, so that a line never lacks its patch."""
        if patch is not None:
            files.write_atomic(self._file(step), patch.to_bytes())
            self._count(patch, self._file(step))
        with self.path.open("ab") as file:
            file.write(json.dumps(asdict(step), ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def let_go(self, patches: Sequence[Patch]) -> None:
        """Let the files of patches go of weights that the patches themselves have let go of."""
        for patch in patches:
            if isinstance(patch, Weights) and patch.let_go and patch.id in self.whole:
                files.write_atomic(self.whole.pop(patch.id), patch.to_bytes())

    def _file(self, step: Step) -> Path:
        return self.patches / f"{step.index}.safetensors"

    def _count(self, patch: Patch, path: Path) -> None:
        """Note a file of weights, unless it is a checkpoint, which stays whole."""
        if isinstance(patch, Weights):
            self.weights += 1
            if self.weights % self.checkpoint_every and not patch.let_go:
                self.whole[patch.id] = path


def read(directory: str | Path) -> tuple[dict[str, Any], list[Step]]:
    """The header and the steps of a run; `Damaged` names a line that is neither."""
    path, found = Path(directory) / "steps.jsonl", list[Any]()
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found.append(json.loads(line) if number == 1 else _step(**json.loads(line)))
        except (ValueError, TypeError, AttributeError) as error:
            raise Damaged(f"{path}:{number} is no line of a run: {error!r}") from error
    return found[0], found[1:]


def _step(retained: Mapping[str, Sequence[int]], **row: Any) -> Step:
    return Step(**row, retained={name: (now, begin) for name, (now, begin) in retained.items()})
