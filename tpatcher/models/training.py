"""Running a net along given answers: the losses that editors share."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from tpatcher.models.model import Model
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin
from tpatcher.patches.weights import swap

Run = Callable[[TeacherForced], Tensor]


def force(model: Model, texts: Sequence[str], answers: Sequence[str]) -> TeacherForced:
    """A batch that goes through these answers."""
    task = model.task
    return task.force(texts, [task.target(t, a) for t, a in zip(texts, answers, strict=True)])


def logits(
    model: Model, net: nn.Module, forced: TeacherForced, weights: Mapping[str, Tensor] | None = None
) -> Tensor:
    """A net's logits at the answer positions, (P, labels or tokens), maybe with other weights."""
    inputs = {k: v.to(model.net.device) for k, v in forced.inputs.items()}
    output = functional_call(net, dict(weights), (), inputs) if weights else net(**inputs)
    return model.task.logits(output, forced).float()


def cross_entropy(logits: Tensor, forced: TeacherForced) -> Tensor:
    """The task's loss at the answer positions, teacher-forced."""
    return F.cross_entropy(logits, forced.tokens.to(logits.device))


def kl(reference: Tensor, now: Tensor) -> Tensor:
    """KL(reference ‖ now) of two sets of logits (P, classes), averaged over positions."""
    return F.kl_div(
        now.log_softmax(-1), reference.log_softmax(-1), log_target=True, reduction="batchmean"
    )


def trainable(model: Model, names: Sequence[str]) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A twin with parameters of its own under these names; the model's are not touched."""
    net = twin(model.net).eval()
    known = dict(net.named_parameters())
    fresh = {name: nn.Parameter(known[name].detach().clone()) for name in names}
    swap(net, fresh)
    return net, fresh


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, clip: float | None = None) -> None:
    """One step on the optimizer's own parameters: others, which twins share, get no gradient."""
    mine = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, mine, allow_unused=True)
    for parameter, gradient in zip(mine, gradients, strict=True):
        parameter.grad = gradient
    if clip is not None:
        nn.utils.clip_grad_norm_(mine, clip)
    optimizer.step()
