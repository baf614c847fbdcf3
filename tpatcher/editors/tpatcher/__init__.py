"""T-Patcher (Huang et al., Transformer-Patcher: One Mistake Worth One Neuron, ICLR 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tpatcher.editors.base import Editor
from tpatcher.editors.tpatcher.max_margin import MaxMargin
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.editors.tpatcher.solver import Solver
from tpatcher.errors import AlreadyRight, BadInput, NotFitted, unknown
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.reading import Reads
from tpatcher.patches.neurons import Neurons

SOLVERS: dict[str, type[Solver]] = {kind.name: kind for kind in (MaxMargin, Paper)}

__all__ = ["SOLVERS", "MaxMargin", "Paper", "Solver", "TPatcher", "solver"]


def solver(name: str, **fields: object) -> Solver:
    """A solver by the name that the command line's `--preset` has for it."""
    if name not in SOLVERS:
        raise unknown("preset", name, SOLVERS)
    return SOLVERS[name](**fields)


@dataclass
class TPatcher(Editor):
    """One neuron per mistake in a feed-forward layer, the last by default.

    `MaxMargin` finds it in a few passes over the memory; `Paper` trains it as the paper does.
    """

    name: ClassVar[str] = "t-patcher"
    solver: Solver = field(default_factory=MaxMargin)
    layer: int = -1
    progress: bool = False
    memory: Memory | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.solver, Mapping):  # as a job that was written down has it
            self.solver = solver(**self.solver)

    def fit(
        self,
        model: Model,
        examples: Sequence[str | Example] | Memory,
        held_out: Sequence[str | Example] = (),
    ) -> Self:
        """Build the memory: of ordinary texts or examples, or take one that was built before.

        By `held_out`, other examples (D_val), `Paper` decides when an edit is trained enough.
        """
        if isinstance(examples, Memory):
            self.memory = examples
        else:
            items, layer = self.solver.items(examples), self._layer(model)
            reads = self.solver.reads if layer == -1 else "position"
            self.memory = Memory.collect(
                model,
                items,
                layer=layer,
                reads=reads,
                progress=self.progress,
                held_out=held_out,
                skip_bos=self.solver.skips_bos,
                background=self.solver.background,
            )
        self.solver.prepare(self.memory)
        return self

    def check_mistake(self, model: Model, example: Example) -> None:
        """Run the model only if other answers are right too: `solve` finds out about this one."""
        if example.also or example.match != "exact":
            super().check_mistake(model, example)

    def fit_key(self) -> dict[str, Any]:
        return {"solver": self.solver.name, "layer": self.layer, "reads": self.solver.reads}

    def knobs(self) -> dict[str, Any]:
        return {**super().knobs(), "solver": self.solver.to_json()}

    def solve(self, model: Model, example: Example) -> Neurons:
        if self.memory is None:
            raise NotFitted(
                "this editor has seen no traffic: call fit(model, texts) first, with a few "
                "thousand texts like those the model is used on (40,000 in the paper)"
            )
        layer = self._layer(model)
        # a memory made for positions alone, of another layer or in an earlier version, decides
        wide = self.memory.queries.shape[1] > ffn.find(model.net, layer).width
        reads: Reads = "text" if wide else "position"
        if model.rows(layer).width > self.memory.queries.shape[1]:
            raise NotFitted(
                "the model has fixes that read the whole text, and this memory was made for keys "
                "that do not: fit the editor anew, with the texts themselves"
            )
        mistake = Mistake.find(model, example, layer, reads)
        if not len(mistake.wrong):
            raise AlreadyRight(f"the model answers {example.text!r} with {example.answer!r}")
        past = PastFixes.of(model, example, layer, reads)
        return self.solver.solve(mistake, self.memory, past)

    def _layer(self, model: Model) -> int:
        """The layer counted from the end, so that every patch names it in the same way."""
        if not -model.n_layers <= self.layer < model.n_layers:
            raise BadInput(f"layer {self.layer} asked for, but {model.name} has {model.n_layers}")
        return self.layer % model.n_layers - model.n_layers
