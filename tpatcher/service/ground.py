"""What a service stands on: one base model, with the editor, the store and the guard for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpatcher.editors import Editor
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.service.guard import Guard, Rules
from tpatcher.service.recent import Traffic
from tpatcher.store.log import Successor
from tpatcher.store.store import Store


@dataclass(frozen=True)
class Ground:
    """All that a change is made with; a service that moves to another base swaps it as a whole."""

    base: Model
    editor: Editor
    store: Store
    guard: Guard

    @classmethod
    def of(
        cls,
        model: Model,
        editor: Editor,
        store: Store,
        canaries: Sequence[Example] = (),
        rules: Rules | None = None,
    ) -> "Ground":
        """The ground with a guard that knows these canaries and the editor's memory."""
        memory = getattr(editor, "memory", None)
        guard = Guard(model, canaries, memory, Traffic(), rules or Rules())
        return cls(model, editor, store, guard)


Way = Callable[[Successor], Ground]  # loads what a move leads to
