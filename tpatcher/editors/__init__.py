"""The editors: one file per method, each behind `fit` and `edit`."""

from tpatcher.editors.base import Editor
from tpatcher.editors.finetune import FTAll, FTAllKL, FTLast, FTLastKL
from tpatcher.editors.grace import Grace
from tpatcher.editors.lora import Lora
from tpatcher.editors.tpatcher import TPatcher
from tpatcher.editors.trained.ke import KE
from tpatcher.editors.trained.mend import Mend
from tpatcher.editors.trained.sera import Sera, Serac

EDITORS: dict[str, type[Editor]] = {
    kind.name: kind
    for kind in (TPatcher, FTLast, FTAll, FTLastKL, FTAllKL, Mend, KE, Sera, Serac, Grace, Lora)
}

__all__ = [
    "EDITORS", "KE", "Editor", "FTAll", "FTAllKL", "FTLast", "FTLastKL", "Grace", "Lora", "Mend",
    "Sera", "Serac", "TPatcher",
]  # fmt: skip
