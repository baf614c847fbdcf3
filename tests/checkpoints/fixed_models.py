"""Models with fixes to write as checkpoints, and settings by which they are taught quickly."""

from contextlib import suppress

from tests.service import served
from tpatcher.checkpoints.consolidate import Settings
from tpatcher.errors import AlreadyRight, NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model

TEXTS = list(served.texts())
# Random weights keep little; what is asked of real models is the default.
EASY = Settings(retention=0.5, learning_rate=1e-3, anchor=3.0)


def patched(name: str) -> Model:
    """A model of the zoo with one or two fixes."""
    base, editor = served.fitted(name)
    model = base.twin()
    right = ("no", "maybe") if base.task.name == "classify" else ("william shakespeare", "rome")
    for text, answer in zip(("who wrote hamlet ?", "where is the cat ?"), right, strict=True):
        with suppress(AlreadyRight, NotFixed):  # random weights: one of the two will do
            model.push(editor.edit(model, Example(text, answer)))
    assert model.patches
    return model
