"""Fixes that read the whole text, solved again for the query of their own position alone.

A stock checkpoint has no place for the text's state, so such fixes cannot be baked as they are.
"""

from dataclasses import dataclass

from tpatcher.editors.tpatcher import TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import AlreadyRight, NotExported, TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.neurons import Neurons


@dataclass(frozen=True)
class Solved:
    """A model none of whose fixes reads the text, and what that cost."""

    model: Model
    again: int  # fixes that were solved again
    rephrasings: int  # of these fixes, given with them or made of their words
    right_before: int  # of the rephrasings
    right_now: int


def by_position(model: Model, memory: Memory) -> Solved:
    """The same fixes, those that read the text solved again after all others, on this memory.

    Each is certified against the memory as any other fix is. `NotExported` names one that cannot
    be made.
    """
    reading = [p for p in model.patches if isinstance(p, Neurons) and p.reads_text]
    other = model.twin()
    other.set_patches(p for p in model.patches if p not in reading)
    if nameless := [p.id for p in reading if p.example is None]:
        raise NotExported(
            f"fix {nameless[0]} reads the text and is here without it: nothing to ask"
        )
    examples = [p.example for p in reading if p.example is not None]
    editor = TPatcher().fit(other, memory.of_positions())
    for example, made in zip(
        examples, editor.edit_all(other, examples, supersede=True), strict=True
    ):
        if isinstance(made, TPatcherError) and not isinstance(made, AlreadyRight):
            raise NotExported(f"{example.text!r} cannot be fixed at its position alone: {made}")
        if not isinstance(made, TPatcherError):
            other.push(made)
    asked = [
        Example(text, e.answer, also=e.also)
        for e in examples
        for text in e.rephrasings or memory.phrases.restated(e.text)
    ]
    before, now = (sum(m.correct(asked)) if asked else 0 for m in (model, other))
    return Solved(other, len(reading), len(asked), before, now)
