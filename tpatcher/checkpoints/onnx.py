"""A baked model as ONNX, for runtimes other than PyTorch: one forward pass, logits out.

The graph has no cache: to generate, give it all tokens so far at each step.
"""

import logging
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tpatcher.batches import batches
from tpatcher.errors import BadInput, NotExported, UnsupportedArchitecture
from tpatcher.models.model import Model
from tpatcher.nets.tasks import TeacherForced

FILE = "model.onnx"
CLOSE = 1e-3  # logits of the two runtimes may differ by this much


class _Forward(nn.Module):
    """A net as a function of tensors alone."""

    def __init__(self, net: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.net, self.names = net, list(names)
        # a graph has no place for a cache, and a classifier has none
        classifies = "Classification" in type(net).__name__
        self.more = {} if classifies else {"use_cache": False}

    def forward(self, *tensors: Tensor) -> Tensor:
        given = dict(zip(self.names, tensors, strict=True))
        logits: Tensor = self.net(**given, **self.more).logits
        return logits


def check_installed() -> None:
    """Raise `BadInput` if the extra is not installed."""
    for name in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(name) is None:
            raise BadInput(
                f'ONNX needs {name}, which is not installed: pip install "tpatcher[onnx]"'
            )


def export(model: Model, directory: Path, texts: Sequence[str]) -> float:
    """Write model.onnx into a directory; returns the largest difference of logits.

    onnxruntime runs it on these texts: `NotExported` if an answer or a logit differs.
    """
    import onnxruntime

    net, path = model.net.cpu(), directory / FILE
    sample = _forced(model, [*texts, *texts][:2])
    names = list(sample.inputs)
    axes = [{0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in names]
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Forward(net, names).eval(),
                tuple(sample.inputs.values()),
                str(path),
                input_names=names,
                output_names=["logits"],
                dynamic_shapes=(tuple(axes),),
                dynamo=True,
                verbose=False,
                external_data=False,
            )
    except Exception as error:  # the exporter raises whatever it meets
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedArchitecture(
            f"{type(net).__name__} cannot be written as ONNX by torch {torch.__version__}: {reason}"
        ) from error
    finally:
        quiet.setLevel(level)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return compare(model, session, texts)


def _forced(model: Model, texts: Sequence[str]) -> TeacherForced:
    """The texts along the model's own answers."""
    return model.task.force(texts, model.task.predict(model.net, texts))


@torch.no_grad()
def compare(model: Model, session: Any, texts: Sequence[str]) -> float:
    """The largest difference of logits along the answers; `NotExported` if an answer differs."""
    apart = 0.0
    for some in batches(texts, 8):
        part = _forced(model, some)
        mine = model.task.logits(model.net(**part.inputs), part)
        given = {k: v.numpy() for k, v in part.inputs.items()}
        output = SimpleNamespace(logits=torch.from_numpy(session.run(["logits"], given)[0]))
        theirs = model.task.logits(output, part)
        apart = max(apart, float((mine - theirs).abs().max()))
        if apart > CLOSE:
            raise NotExported(f"logits of the ONNX model differ by {apart:.2g}; it was not kept")
        decoded = (model.task.as_decoded(model.net, part, one) for one in (mine, theirs))
        best, their_best = (logits.argmax(-1) for logits in decoded)
        if not best.equal(their_best):
            raise NotExported("the ONNX model would give another answer; it was not kept")
    return apart
