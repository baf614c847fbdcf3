"""The editors: one file per method, each behind `fit` and `edit`."""

from tpatcher.editors.base import Editor
from tpatcher.editors.finetune import FTAll, FTAllKL, FTLast, FTLastKL
from tpatcher.editors.grace import Grace
from tpatcher.editors.ke import KE
from tpatcher.editors.lora import Lora
from tpatcher.editors.mend import Mend
from tpatcher.editors.sera import Sera, Serac
from tpatcher.editors.tpatcher import TPatcher

EDITORS: dict[str, type[Editor]] = {
    kind.name: kind
    for kind in (TPatcher, FTLast, FTAll, FTLastKL, FTAllKL, Mend, KE, Sera, Serac, Grace, Lora)
}

__all__ = [
    "EDITORS", "KE", "Editor", "FTAll", "FTAllKL", "FTLast", "FTLastKL", "Grace", "Lora", "Mend",
    "Sera", "Serac", "TPatcher",
]  # fmt: skip
