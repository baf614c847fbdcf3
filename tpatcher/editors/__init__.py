"""Do I know a method's name from a paper? One file or folder per method, each an `Editor`."""

from typing import Any

from tpatcher.editors.base import Editor, with_fields
from tpatcher.editors.cache import Cache
from tpatcher.editors.finetune import FTAll, FTAllKL, FTLast, FTLastKL
from tpatcher.editors.grace import Grace
from tpatcher.editors.lora import Lora
from tpatcher.editors.tpatcher import TPatcher
from tpatcher.editors.trained.ke import KE
from tpatcher.editors.trained.mend import Mend
from tpatcher.editors.trained.sera import Sera, Serac
from tpatcher.errors import unknown

EDITORS: dict[str, type[Editor]] = {
    kind.name: kind
    for kind in (
        TPatcher,
        FTLast,
        FTAll,
        FTLastKL,
        FTAllKL,
        Mend,
        KE,
        Sera,
        Serac,
        Cache,
        Grace,
        Lora,
    )
}


def make(name: str, /, **knobs: Any) -> Editor:
    """The editor of this name, with these knobs; `BadInput` for a name that is not known."""
    if name not in EDITORS:
        raise unknown("editor", name, EDITORS)
    return with_fields(EDITORS[name], name, knobs)


__all__ = [
    "EDITORS", "KE", "Cache", "Editor", "FTAll", "FTAllKL", "FTLast", "FTLastKL", "Grace", "Lora",
    "Mend", "Sera", "Serac", "TPatcher", "make",
]  # fmt: skip
