"""Loading a model from a directory, the hub or the package."""

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tpatcher import data
from tpatcher.errors import BadInput, UnsupportedArchitecture, unknown
from tpatcher.models import peft_models
from tpatcher.models.model import Model
from tpatcher.patches import hub, pack

AUTO = {
    "classify": AutoModelForSequenceClassification,
    "seq2seq": AutoModelForSeq2SeqLM,
    "causal": AutoModelForCausalLM,
}
HEADS = {"SequenceClassification": "classify", "ConditionalGeneration": "seq2seq"}
HEADS |= {"MTModel": "seq2seq", "CausalLM": "causal", "LMHeadModel": "causal"}
BUILTIN = ("builtin-fc", "builtin-qa")
DTYPES = ("float32", "float16", "bfloat16")
QUANTIZED = {"4bit": {"load_in_4bit": True}, "8bit": {"load_in_8bit": True}}
Quantize = Literal["4bit", "8bit"]


def load(
    name_or_path: str | Path | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task: str | None = None,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    device_map: str | dict[str, Any] | None = None,
    quantize: Quantize | None = None,
    max_new_tokens: int | None = None,
    encoder: str = "",
    patches: str | Path | None = None,
) -> Model:
    """Load a model from a directory, the hub or the package, and put a pack of patches on.

    The pack is a directory too, or a name on the hub: `patches="user/name"`.
    A directory may hold a PEFT adapter. A net that is loaded already is taken as it is, with its
    `tokenizer`. The net's weights are read, never written: a quantised or sharded base stays what
    it is, and patches compute in float32 beside it. `encoder` names a sentence encoder, a
    directory or a name on the hub, by which fixes that read the text then read it.
    """
    if not isinstance(name_or_path, str | Path):
        model = _given(name_or_path, tokenizer, task, max_new_tokens, encoder)
    else:
        if device == "auto":
            device, device_map = None, "auto"
        options = _options(dtype, device_map, quantize)
        model = _from_files(
            str(name_or_path), tokenizer, task, device, options, max_new_tokens, encoder
        )
    if patches is not None:
        model.set_patches(pack.read(hub.found(patches), model.base))
    return model


def _given(
    net: Any,
    tokenizer: PreTrainedTokenizerBase | None,
    task: str | None,
    limit: int | None,
    encoder: str,
) -> Model:
    """A model of a net that the caller has loaded."""
    net = peft_models.unwrapped(net)
    if not isinstance(net, PreTrainedModel):
        raise BadInput(f"a model is a name, a path or a PreTrainedModel; found {type(net)}")
    if tokenizer is None:
        raise BadInput("a net that is loaded already needs its tokenizer=, to read texts with")
    name = net.name_or_path or type(net).__name__
    task = task or _task_of([type(net).__name__], name)
    return Model(net, tokenizer, task, name, limit, encoder)


def _from_files(
    name: str,
    tokenizer: PreTrainedTokenizerBase | None,
    task: str | None,
    device: str | None,
    options: dict[str, Any],
    limit: int | None,
    encoder: str,
) -> Model:
    """A model of a directory or of the hub."""
    path = Path(data.__file__).parent / name if name in BUILTIN else Path(name)
    where = str(path) if path.exists() else name
    adapter, where = peft_models.base_of(where)
    try:
        config = AutoConfig.from_pretrained(where, trust_remote_code=False)  # nor ask to
        if tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"cannot load {name!r}: {reason}. Give a directory saved by save_pretrained, a name on "
            f"the hub, or one of {', '.join(BUILTIN)}"
        ) from error
    task = task or _task_of(config.architectures, name)
    if task not in AUTO:
        raise unknown("task", task, AUTO)
    net, info = AUTO[task].from_pretrained(
        where, config=config, output_loading_info=True, trust_remote_code=False, **options
    )
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise BadInput(
            f"{name!r} has no trained weights for {missing}: it was not trained to {task}; "
            "fine-tune it first, or give another task"
        )
    if device is not None:
        net = net.to(device)
    if adapter is not None:
        net = peft_models.unwrapped(peft_models.adapted(net, adapter))
    own = net.generation_config if task == "causal" else None
    if limit is None and own and own.max_new_tokens is None and own.max_length in (None, 20):
        warnings.warn(
            f"the generation config of {name!r} has no limit, so answers are cut after 20 tokens: "
            "give max_new_tokens= (--max-new-tokens)",
            stacklevel=4,
        )
    return Model(net, tokenizer, task, name=name, max_new_tokens=limit, encoder=encoder)


def _options(
    dtype: str | torch.dtype | None, device_map: str | dict[str, Any] | None, quantize: str | None
) -> dict[str, Any]:
    """What `from_pretrained` is told beside the name; `BadInput` for what is not installed."""
    options: dict[str, Any] = {"device_map": device_map}
    if dtype is not None:
        known = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
        if known not in [getattr(torch, name) for name in DTYPES]:
            raise unknown("dtype", str(dtype), DTYPES)
        options["dtype"] = known
    if device_map is not None:
        _need("accelerate", f"device_map={device_map!r}")
    if quantize is not None:
        if quantize not in QUANTIZED:
            raise unknown("quantization", quantize, QUANTIZED)
        _need("bitsandbytes", f"quantize={quantize!r}")
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(**QUANTIZED[quantize])
    return options


def _need(package: str, asked: str) -> None:
    """Raise `BadInput` if a package that is asked for is not installed."""
    if not installed(package):
        raise BadInput(f"{asked} needs {package}, which is not installed: pip install {package}")


def installed(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


def _task_of(architectures: Sequence[str] | None, name: str) -> str:
    """The task that a model's architecture was made for."""
    for architecture in architectures or ():
        for ending, task in HEADS.items():
            if architecture.endswith(ending):
                return task
    raise UnsupportedArchitecture(
        f"{name!r} says it is {architectures}, which neither classifies nor generates; "
        f"give task= one of {', '.join(AUTO)} if it can"
    )
