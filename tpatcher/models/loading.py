"""Loading a model from a directory, the hub or the package."""

from pathlib import Path

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
)

from tpatcher import data
from tpatcher.errors import BadInput, UnsupportedArchitecture
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


def load(
    name_or_path: str | Path,
    *,
    task: str | None = None,
    device: str | None = None,
    patches: str | Path | None = None,
) -> Model:
    """Load a model from a directory, the hub or the package, and put a pack of patches on.

    The pack is a directory too, or a name on the hub: `patches="user/name"`.
    """
    name = str(name_or_path)
    path = Path(data.__file__).parent / name if name in BUILTIN else Path(name)
    where = str(path) if path.exists() else name
    try:
        config = AutoConfig.from_pretrained(where, trust_remote_code=False)  # nor ask to
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"cannot load {name!r}: {reason}. Give a directory saved by save_pretrained, a name on "
            f"the hub, or one of {', '.join(BUILTIN)}"
        ) from error
    task = task or task_of(config, name)
    if task not in AUTO:
        raise BadInput(f"unknown task {task!r}. Available: {', '.join(AUTO)}")
    net, info = AUTO[task].from_pretrained(
        where, config=config, output_loading_info=True, trust_remote_code=False,
        device_map="auto" if device == "auto" else None,
    )  # fmt: skip
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise BadInput(
            f"{name!r} has no trained weights for {missing}: it was not trained to {task}; "
            "fine-tune it first, or give another task"
        )
    if device not in (None, "auto"):
        net = net.to(device)
    model = Model(net, tokenizer, task, name=name)
    if patches is not None:
        model.set_patches(pack.read(hub.found(patches), model.base))
    return model


def task_of(config: PreTrainedConfig, name: str) -> str:
    """The task that a config's architecture was made for."""
    for architecture in config.architectures or ():
        for ending, task in HEADS.items():
            if architecture.endswith(ending):
                return task
    raise UnsupportedArchitecture(
        f"{name!r} says it is {config.architectures}, which neither classifies nor generates; "
        f"give task= one of {', '.join(AUTO)} if it can"
    )
