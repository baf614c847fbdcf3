"""Training a net on given answers: the losses and steps that editors share."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from tpatcher.batches import batches
from tpatcher.models.model import Model
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin
from tpatcher.patches.weights import swap


def force(model: Model, texts: Sequence[str], answers: Sequence[str]) -> TeacherForced:
    """A batch that runs a net along these answers."""
    task = model.task
    return task.force(texts, [task.target(t, a) for t, a in zip(texts, answers, strict=True)])


def logits(model: Model, net: nn.Module, forced: TeacherForced) -> Tensor:
    """The logits of a net, a twin of the model's, at the answer positions (P, labels or tokens)."""
    inputs = {k: v.to(model.net.device) for k, v in forced.inputs.items()}
    return model.task.logits(net(**inputs), forced).float()


@torch.inference_mode()
def predict(model: Model, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
    """The answers of a net, a twin of the model's, in the form of the task's targets."""
    return [one for part in batches(texts, 32) for one in model.task.predict(net, part)]


def cross_entropy(logits: Tensor, forced: TeacherForced, smoothing: float = 0.0) -> Tensor:
    """The task's loss, averaged over the answer positions."""
    target = forced.tokens.to(logits.device)
    return F.cross_entropy(logits, target, label_smoothing=smoothing)


def kl(reference: Tensor, current: Tensor) -> Tensor:
    """KL(reference ‖ current) of two sets of logits (P, classes), averaged over positions."""
    before, after = reference.log_softmax(-1), current.log_softmax(-1)
    return F.kl_div(after, before, log_target=True, reduction="batchmean")


def trainable(model: Model, names: Sequence[str]) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A twin of the net with its own copies of these parameters, and the copies by name."""
    net = twin(model.net).eval()
    shared = dict(net.named_parameters())
    fresh = {name: nn.Parameter(shared[name].detach().clone()) for name in names}
    swap(net, fresh)
    return net, fresh


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, clip: float | None = None) -> None:
    """Take one step on the optimizer's parameters; others, which twins share, get no gradient."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    if clip is not None:
        nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()
