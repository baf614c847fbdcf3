"""What a solver is: the part of T-Patcher that finds the neurons for one mistake."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Draft, Mistake, PastFixes
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets.reading import Reads
from tpatcher.patches.neurons import Neurons


@dataclass(frozen=True)
class Solver(ABC):
    """Its fields are its knobs. A solver keeps no state, neither per edit nor per model."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # as an editor has one
    reads: ClassVar[Reads] = "position"  # what keys of the last layer read
    skips_bos: ClassVar[bool] = False  # its memory leaves out positions that only say <s>
    background: ClassVar[bool] = False  # its memory of a language model has one

    @abstractmethod
    def solve(self, mistake: Mistake, memory: Memory, past: PastFixes) -> Neurons:
        """Neurons for every wrong position of a mistake."""

    def together(
        self, mistakes: Sequence[Mistake], memory: Memory, past: PastFixes
    ) -> Iterable[tuple[Mistake, Draft]]:
        """What to begin with for some of these mistakes, where to find it together is cheaper."""
        return ()

    def beside(self, model: Model, example: Example, memory: Memory) -> Sequence[str]:
        """Texts that are worth running in one batch with an example, along its target."""
        return ()

    def items(self, examples: Sequence[str | Example]) -> Sequence[str | Example]:
        """What the memory is collected of: as the paper has it, examples with right answers."""
        return examples

    def check_memory(self, memory: Memory) -> None:  # noqa: B027 (most solvers ask nothing of it)
        """Raise if no edit could be made with this memory."""

    def to_json(self) -> dict[str, Any]:
        """The solver as a plain dict."""
        return {"name": self.name, **asdict(self)}
