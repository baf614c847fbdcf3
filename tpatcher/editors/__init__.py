"""The editors: one file per method, each behind `fit` and `edit`."""

from tpatcher.editors.base import Editor
from tpatcher.editors.tpatcher import TPatcher

EDITORS: dict[str, type[Editor]] = {kind.name: kind for kind in (TPatcher,)}

__all__ = ["EDITORS", "Editor", "TPatcher"]
