"""Is it Transformer-Patcher? One mistake worth one neuron (Huang et al., ICLR 2023)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

from tpatcher.editors.base import Editor, with_fields
from tpatcher.editors.tpatcher import contrast
from tpatcher.editors.tpatcher.ahead import Ahead, Seen
from tpatcher.editors.tpatcher.max_margin import MaxMargin
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.editors.tpatcher.remembering import remember
from tpatcher.editors.tpatcher.solver import Solver
from tpatcher.errors import AlreadyRight, BadInput, NotFitted, TPatcherError, unknown
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets import ffn, reading
from tpatcher.nets.reading import Reads
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons

CONTRAST = 45  # texts that a fix is held against whose key reads the text
NAMESAKES = 15  # those of a language model
PRESETS: dict[str, Callable[..., Solver]] = {
    "fast": MaxMargin,
    "text": partial(MaxMargin, reads="text", contrast=CONTRAST, namesakes=NAMESAKES),
    "paper": Paper,
}

__all__ = ["PRESETS", "MaxMargin", "Paper", "Solver", "TPatcher", "solver"]


def solver(name: str = "fast", **fields: object) -> Solver:
    """A solver by the name that the command line's `--preset` has for it."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return with_fields(PRESETS[name], f"the solver {name}", fields)


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
    ahead: Ahead | None = field(default=None, repr=False)  # of edits that are made together

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
            examples.check_base(model.base)
            self.memory = examples
        else:
            self.memory = Memory.collect(
                model,
                self.solver.items(examples),
                layer=self._layer(model),
                reads=self.reads(model),
                progress=self.progress,
                held_out=held_out,
                skip_bos=self.solver.skips_bos,
                background=self.solver.background,
            )
        self.memory = self.memory.near(model.net.device)
        self.solver.check_memory(self.memory)
        return self

    def remember(self, model: Model, texts: Sequence[str]) -> Self:
        """This editor with the model's answers to these texts in its memory, beside the others."""
        if self.memory is None or not texts:
            return self
        return replace(self, memory=remember(self.memory, model, texts, self._layer(model)))

    def check_mistake(self, model: Model, example: Example) -> None:
        """Run the model only if other answers are right too: `solve` finds out about this one."""
        if example.also or example.match != "exact":
            super().check_mistake(model, example)

    def versions(self) -> list[int]:
        found = [self.version, self.solver.version]
        return [*found, reading.VERSION, contrast.VERSION] if self.solver.reads == "text" else found

    def fit_key(self) -> dict[str, Any]:
        return {"solver": self.solver.name, "layer": self.layer, "reads": self.solver.reads}

    def knobs(self) -> dict[str, Any]:
        return {**super().knobs(), "solver": self.solver.to_json()}

    def edit_all(
        self, model: Model, examples: Sequence[Example], *, supersede: bool = False
    ) -> Iterator[Patch | TPatcherError]:
        """Edit many examples, each on top of those before, the model run on many at once."""
        if self.layer == -1 and self.memory is not None and model.tail_is_exact:
            together = replace(self, ahead=Ahead(self.solver, self.memory, examples))
        else:
            together = self
        yield from Editor.edit_all(together, model, examples, supersede=supersede)

    def solve(self, model: Model, example: Example) -> Neurons:
        if self.memory is None:
            raise NotFitted(
                "this editor has seen no traffic: call fit(model, texts) first, with a few "
                "thousand texts like those the model is used on (40,000 in the paper)"
            )
        layer = self._layer(model)
        reads = self.memory.reads
        if model.rows(layer).width > self.memory.width >= ffn.find(model.net, layer).width:
            raise NotFitted(
                "the model has fixes that read the whole text, and this memory was made for keys "
                "that do not: fit the editor anew, with the texts themselves"
            )
        seen = self.ahead.take(model, example) if self.ahead else Seen()
        beside = self.solver.beside(model, example, self.memory)
        mistake = Mistake.find(model, example, layer, reads, seen.followed, beside)
        if not len(mistake.wrong):
            raise AlreadyRight(f"the model answers {example.text!r} with {example.answer!r}")
        if (width := mistake.queries.shape[1]) != self.memory.width:
            raise NotFitted(
                f"queries of this model have width {width}, and those of the memory "
                f"{self.memory.width}: it was made by another model, or by one with "
                "another sentence encoder; fit the editor anew"
            )
        mistake = replace(mistake, draft=seen.draft_for(mistake))
        past = PastFixes.of(model, [example.text], layer, reads)
        return self.solver.solve(mistake, self.memory, past)

    def reads(self, model: Model) -> Reads:
        """What keys of the patched layer read: the whole text is known in the last one alone."""
        return self.solver.reads if self._layer(model) == -1 else "position"

    def _layer(self, model: Model) -> int:
        """The layer counted from the end, so that every patch names it in the same way."""
        if not -model.n_layers <= self.layer < model.n_layers:
            raise BadInput(f"layer {self.layer} asked for, but {model.name} has {model.n_layers}")
        return self.layer % model.n_layers - model.n_layers
