"""tpatcher fixes the mistakes of deployed transformer models, one neuron a mistake."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Torch and Transformers take seconds to import, so a name is looked up when it is first used.
_NAMES = {
    "Conversation": "example",
    "Document": "example",
    "Example": "example",
    "Memory": "editors.tpatcher.memory",
    "Model": "models.model",
    "TPatcher": "editors.tpatcher",
    "EDITORS": "editors",
    "instead": "models.instead",
    "load": "models.loading",
    "run": "sme",
    "score": "sme",
}
__all__ = [
    "EDITORS", "Conversation", "Document", "Example", "Memory", "Model", "TPatcher", "__version__",
    "data", "errors", "instead", "load", "run", "score",
]  # fmt: skip

if TYPE_CHECKING:
    from tpatcher import data, errors
    from tpatcher.editors import EDITORS, TPatcher
    from tpatcher.editors.tpatcher.memory import Memory
    from tpatcher.example import Conversation, Document, Example
    from tpatcher.models.instead import instead
    from tpatcher.models.loading import load
    from tpatcher.models.model import Model
    from tpatcher.sme import run, score


def __getattr__(name: str) -> Any:
    if name in ("data", "errors"):
        return import_module(f"tpatcher.{name}")
    if name in _NAMES:
        return getattr(import_module(f"tpatcher.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tpatcher' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
