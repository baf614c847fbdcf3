"""Models that PEFT has fine-tuned: the adapted net itself is patched, nothing is merged."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from tpatcher.errors import BadInput

ADAPTER = "adapter_config.json"


def base_of(where: str) -> tuple[str | None, str]:
    """An adapter's directory and the name of its base; None and the same name if it is none."""
    file = Path(where) / ADAPTER
    if not file.is_file() or (Path(where) / "config.json").is_file():
        return None, where
    base = json.loads(file.read_bytes()).get("base_model_name_or_path")
    if not base:
        raise BadInput(f"{file} does not say which base_model_name_or_path the adapter is for")
    return where, str(base)


def adapted(net: PreTrainedModel, adapter: str) -> Any:
    """The net with an adapter that was saved."""
    if find_spec("peft") is None:
        raise BadInput(f"{adapter} is an adapter of peft, which is not installed: pip install peft")
    from peft import PeftModel

    return PeftModel.from_pretrained(net, adapter)


def unwrapped(net: Any) -> Any:
    """The Transformers model inside a PEFT model, its adapters in place; any other as it is."""
    inner = getattr(net, "base_model", None)
    if type(net).__module__.startswith("peft.") and inner is not None:
        return getattr(inner, "model", inner)
    return net
