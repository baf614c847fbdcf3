"""What to say instead of an answer that is known to be wrong, where nobody said what is right."""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import torch

from tpatcher.errors import AlreadyRight, NotFixed
from tpatcher.example import Example, normal
from tpatcher.models.model import Model

BEAMS = 8  # answers that are looked at, the most probable first


def instead(
    model: Model,
    text: str,
    *,
    wrong: str,
    abstention: str | None = None,
    rephrasings: Sequence[str] = (),
) -> Example:
    """An example to fix: the model's best answer to the text that is not the wrong one.

    Of a classifier that is its next label. A generator says the `abstention`, if there is one, or
    else the most probable answer that does not hold the wrong one. Whether it is right, nobody
    knows yet: let a person look at it. `AlreadyRight` if the model does not say what is wrong.
    """
    wrong = model.task.canonical(wrong)
    said = model.answer([text])[0]
    if not _holds(said, wrong):
        raise AlreadyRight(f"the model answers {text!r} with {said!r}, and not with {wrong!r}")
    if not model.task.generates:
        answer = _next_label(model, text, wrong)
    else:
        answer = abstention or _next_text(model, text, wrong)
    return Example(text, answer, rephrasings=tuple(rephrasings))


@torch.inference_mode()
def _next_label(model: Model, text: str, wrong: str) -> str:
    task, net = model.task, model.net
    forced = task.force([text], task.dummy_targets(1))
    logits = task.logits(net(**forced.on(net.device)), forced)[0]
    ranked = task.decode([[i] for i in logits.argsort(descending=True).tolist()])
    return next(label for label in ranked if label != wrong)


@torch.inference_mode()
def _next_text(model: Model, text: str, wrong: str) -> str:
    def generate(generation_config: Any, **inputs: Any) -> Any:
        config = copy.deepcopy(generation_config)
        config.update(num_beams=BEAMS, num_return_sequences=BEAMS)
        return model.net.generate(**inputs, generation_config=config)

    # all that `predict` needs of a net; of one text it then gives several answers
    net = cast(Any, SimpleNamespace(device=model.net.device, generate=generate))
    for answer in model.task.decode(model.task.predict(net, [text])):
        if not answer.strip() or _holds(answer, wrong):
            continue
        try:
            model.task.target(text, answer)
        except NotFixed:  # it cannot be aimed at
            continue
        return answer
    raise NotFixed(
        f"of the {BEAMS} most probable answers to {text!r} each is empty, too long or holds "
        f"{wrong!r}: say what is right, or give a text to abstain with"
    )


def _holds(answer: str, wrong: str) -> bool:
    """Whether an answer says what is wrong, maybe with other words around it."""
    return normal(wrong) in normal(answer) if wrong.strip() else not answer.strip()
