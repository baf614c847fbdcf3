"""The paper's procedure to the letter (Section 4.2, appendix): what ours is measured against.

Each step runs the model on 8 repeats of the mistake with dropout, and every memory query through
the patch, forward and backward. The paper freezes all original parameters (Section 4), so its
backward pass ends at the patch. What a backward pass through the whole model would cost, as
where nobody turns its gradients off, is measured beside it.
"""

import copy
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.rows import Rows

REPEATS = 8
STEPS = 125  # the paper's schedule: a first check at step 100, the next one after 25 more
A, M, K, K_A, RATE = 1.0, 10.0, 1000, 5, 0.01
BETA, GAMMA = -3.0, 3.0  # of GeLU


def S(v: Tensor, k: int) -> Tensor:
    flat = v.flatten()
    return flat.topk(min(k, flat.numel())).values.exp().mean()


def seconds(model: Model, example: Example, memory: Memory, frozen: bool, timed: int = 5) -> float:
    """Seconds that 125 steps take: the median of a few, times 125."""
    net = copy.deepcopy(model.net).train()
    net.requires_grad_(not frozen)
    place = ffn.find(net)
    target = model.task.target(example.text, example.answer)
    forced = model.task.force([example.text] * REPEATS, [target] * REPEATS)
    queries: list[Tensor] = []
    net.get_submodule(place.first).register_forward_pre_hook(
        lambda module, args: queries.append(args[0])
    )
    with torch.no_grad():
        output = net(**forced.inputs)
    wrong = _wrong(model, example, target)
    at = (forced.row, forced.column)
    first = queries.pop()[at].view(REPEATS, -1, place.width).mean(0)[wrong]
    keys = (first / first.square().sum(-1, keepdim=True)).requires_grad_()
    bias = torch.zeros(len(keys), requires_grad=True)
    base = torch.rand_like(keys).requires_grad_()
    scale = torch.full_like(base, 5.0).requires_grad_()
    adam = torch.optim.Adam([keys, bias, base, scale], lr=RATE, weight_decay=0.01)
    took = []
    for _ in range(timed + 1):
        began = perf_counter()
        place.widen(net, Rows(keys, bias, base * scale))
        seen: list[Tensor] = []
        hook = net.get_submodule(place.first).register_forward_pre_hook(
            lambda module, args, seen=seen: seen.append(args[0])
        )
        output = net(**forced.inputs)
        logits = model.task.logits(output, forced).float()
        l_e = F.cross_entropy(logits, forced.tokens)
        own = seen[0][at].view(REPEATS, -1, place.width)[:, wrong]  # (8, n, d)
        activation = (own * keys).sum(-1) + bias
        response = memory.queries @ keys.T + bias  # (N, n)
        l_a = S(-activation, K_A)
        l_m = S(response - BETA, K) + S(response - activation.mean(0) + GAMMA, K)
        net.zero_grad()
        adam.zero_grad()
        (l_e + A * l_a + M * l_m).backward()
        adam.step()
        hook.remove()
        place.restore(net)
        took.append(perf_counter() - began)
    return STEPS * float(torch.tensor(took[1:]).median())


@torch.no_grad()
def _wrong(model: Model, example: Example, target: list[int]) -> Tensor:
    """The positions (n,) that get a neuron."""
    forced = model.task.force([example.text], [target])
    logits = model.task.logits(model.net(**forced.inputs), forced)
    logits = model.task.as_decoded(model.net, forced, logits)
    return (logits.argmax(-1) != forced.tokens).nonzero()[:, 0]
