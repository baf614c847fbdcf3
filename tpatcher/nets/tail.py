"""What is left of a model after its last feed-forward layer: norm and head, position by position.

A patch in the last layer changes the output at its own position only. So the patched model's
logits are tail(x + Act(q·K + b)·V), where q is the query and x what enters the next norm; the
transformer's body never has to run again.
"""

import threading
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from tpatcher.nets import ffn
from tpatcher.nets.probe import Probe
from tpatcher.nets.products import FewRows
from tpatcher.nets.tasks import Task, TeacherForced
from tpatcher.nets.twin import twin

# Two ways to compute the same logits differ by rounding; a gap below this decides nothing.
ROUNDING = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 3e-1}

HEADS = ("lm_head", "embed_out")  # a language model's matrix of output embeddings


class LayerStub(nn.Module):
    """Stands for the whole stack of layers, and returns the hidden states it is given."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.kind, self.has = type(like), set(like)
        self.local = threading.local()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = self.local.hidden
        more = {"hidden_states": (hidden,)} if "hidden_states" in self.has else {}
        return self.kind(last_hidden_state=hidden, **more)


@dataclass
class Tail:
    """Norm and head of a model, as a function of the state that enters them.

    A state is x, (P, d). Where the feed-forward output is normalised before the residual is
    added (Gemma), it is that output and the residual side by side, (P, 2d).
    """

    head: PreTrainedModel  # the net with its stack of layers replaced by `stub`
    stub: LayerStub
    names: list[str]  # the modules between the last feed-forward layer and the head
    steps: list[nn.Module]
    residual_step: int | None  # the step before which the residual is added, if it is
    inputs: dict[str, Tensor]  # something to call the head with
    task: Task
    rounding: float
    lipschitz: float | None = None  # no logit changes more than this times a change of `hidden`

    def __call__(self, state: Tensor) -> Tensor:
        """Logits (P, labels or tokens) for states (P, d or 2d)."""
        return self.logits(self.hidden(state))

    def hidden(self, state: Tensor) -> Tensor:
        """What the head reads: the states after the norm."""
        x, residual = self.split(state.to(self.head.dtype))
        for i, step in enumerate(self.steps):
            x = step(x + residual if i == self.residual_step else x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """The head alone."""
        n = len(hidden)
        if self.task.generates:  # one text with a position for each state
            self.stub.local.hidden = hidden[None]
            inputs = self.inputs
        else:  # a text of one token for each state
            self.stub.local.hidden = hidden[:, None]
            inputs = {k: v.expand(n, *v.shape[1:]) for k, v in self.inputs.items()}
        if "encoder_outputs" in inputs:
            last = inputs["encoder_outputs"]
            inputs = {**inputs, "encoder_outputs": BaseModelOutput(last_hidden_state=last)}  # type: ignore[dict-item, arg-type]
        out: Tensor = self.head(**inputs, use_cache=False).logits.float()
        return self.task.flatten_logits(out)

    def restricted_to(self, tokens: Tensor) -> "Tail | None":
        """The same tail with a head of these tokens only; None where a head has no such rows."""
        name = next((n for n in HEADS if hasattr(self.head, n)), "")
        rows = getattr(self.head, name, None)
        if not self.task.generates or not isinstance(rows, nn.Linear):
            return None
        head = twin(self.head)
        setattr(head, name, FewRows.of(rows, tokens))
        if isinstance(bias := getattr(head, "final_logits_bias", None), Tensor):  # BART and its kin
            head.final_logits_bias = bias[:, tokens]
        return replace(self, head=head, lipschitz=None)  # its stub reads the same local

    def split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """A state's two halves: x, and the residual where it comes later."""
        d = state.shape[-1] // (1 if self.residual_step is None else 2)
        return state[:, :d], state[:, d:]

    def state(self, seen: dict[str, Tensor]) -> Tensor:
        """The state, from what a probe saw enter this tail's modules."""
        before = x = seen[self.names[0]]
        if self.residual_step is None:
            return x
        for step in self.steps[: self.residual_step]:
            before = step(before.to(self.head.dtype)).float()
        return torch.cat([x, seen[self.names[self.residual_step]] - before], dim=-1)

    def may_flip(self, before: Tensor, after: Tensor, gap: Tensor) -> Tensor:
        """Where (P,) a change of state could let another token win, which lost by `gap` before.

        False is certain: a small step in front of the head cannot bridge a large gap.
        """
        if self.lipschitz is None:
            return torch.ones(len(gap), dtype=torch.bool)
        step = (self.hidden(after) - self.hidden(before)).norm(dim=-1).cpu()
        return 2 * self.lipschitz * step + self.rounding >= gap

    def confirms(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Where (P,) a token wins by more than rounding."""
        two = logits.topk(2, dim=-1)
        sure = two.values[:, 0] - two.values[:, 1] > self.rounding
        return ((two.indices[:, 0] == tokens.to(logits.device)) & sure).cpu()

    def shift(self, state: Tensor, delta: Tensor) -> Tensor:
        """The state after a change of the feed-forward output."""
        if self.residual_step is None:
            return state + delta
        return torch.cat([state[:, : delta.shape[-1]] + delta, state[:, delta.shape[-1] :]], -1)


@torch.no_grad()
def find(net: PreTrainedModel, task: Task) -> tuple[Tail | None, Task]:
    """The tail of a model, checked against its own logits, and the task that reads where it does.

    None, with a warning, if the model does more after its last layer than a tail can.
    """
    owner = ffn.layers(net)[-1].rpartition(".")[0].rpartition(".")[0]
    targets = task.dummy_targets(2)
    for candidate in task.readings():
        forced = candidate.force(["hello", "hello and good morning"], targets)
        tail, output, seen = _trace(net, candidate, owner, forced)
        if tail is None:
            continue
        wanted = candidate.logits(output, forced).float()
        found = tail(tail.state(seen))
        if found.shape == wanted.shape and (found - wanted).abs().max() < tail.rounding:
            return tail, candidate
    warnings.warn(
        f"{type(net).__name__} does more after its last layer than norm and head at one position; "
        "the whole model will be run where a cached state would have done, which is slower",
        stacklevel=3,
    )
    return None, task.reading_all()


def _trace(
    net: PreTrainedModel, task: Task, owner: str, forced: TeacherForced
) -> tuple[Tail | None, Any, dict[str, Tensor]]:
    """A tail made of the modules that were seen to run after the last feed-forward layer."""
    watched = twin(net)
    second = ffn.find(net).second
    ran: list[tuple[str, Tensor, Tensor]] = []
    stack: list[Any] = []
    for name, module in watched.named_modules():
        if name == second or not any(True for _ in module.children()):  # PEFT's have parts
            module.register_forward_hook(_note(name, ran))
    watched.get_submodule(owner).register_forward_hook(
        lambda module, args, output: stack.extend([len(ran), output])
    )
    watched(**forced.on(net.device))
    begin, end = max(i for i, (name, _, _) in enumerate(ran) if name == second), stack[-2]
    after = [e for e in ran[begin + 1 : end] if not isinstance(net.get_submodule(e[0]), nn.Dropout)]
    if not after or not hasattr(stack[-1], "last_hidden_state"):
        return None, None, {}
    apart = [i for i in range(1, len(after)) if not torch.equal(after[i - 1][2], after[i][1])]
    names = [name for name, _, _ in after]
    head = twin(net)
    steps = [head.get_submodule(name) for name in names]
    stub = LayerStub(stack[-1])
    ffn.set_module(head, owner, stub)
    for name in HEADS:
        if type(rows := getattr(head, name, None)) is nn.Linear:
            setattr(head, name, FewRows.of(rows))
    tail = Tail(
        head=head,
        stub=stub,
        names=names,
        steps=steps,
        residual_step=apart[0] if apart else None,
        inputs=task.head_inputs(net, forced),
        task=task,
        rounding=ROUNDING.get(net.dtype, 1e-3),
    )
    output, seen = Probe(net, names).run(forced)
    tail.lipschitz = _lipschitz(tail, [net.get_submodule(name) for name, _, _ in ran[end:]], seen)
    return tail, output, seen


def _lipschitz(tail: Tail, parts: list[nn.Module], seen: dict[str, Tensor]) -> float | None:
    """How far the head can carry a change of `hidden`, if it is made of parts that tell.

    A matrix stretches by its largest singular value at most, towards a single logit by its row's
    norm; the usual activations by 1.13 at most. A further norm has no such bound.
    """
    matrices = [part for part in parts if isinstance(part, nn.Linear)]
    if not matrices or any("Norm" in type(part).__name__ for part in parts):
        return None
    *inner, last = [matrix.weight.float() for matrix in matrices]
    bound = float(last.norm(dim=-1).max())
    for weight in inner:
        bound *= 1.13 * float(torch.linalg.matrix_norm(weight, 2))
    if not inner:  # a language model may scale or cap its logits: most steeply near 0
        hidden = tail.hidden(tail.state(seen)[:1]) * 1e-2
        change = tail.logits(hidden) - tail.logits(torch.zeros_like(hidden))
        bound *= float(change.norm() / (hidden.float() @ last.T).norm())
    return 1.01 * bound


def _note(name: str, ran: list[tuple[str, Tensor, Tensor]]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            ran.append((name, args[0], output))

    return hook
