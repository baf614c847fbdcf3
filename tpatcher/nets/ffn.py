"""Where a transformer keeps its feed-forward layers, and how one is made wider.

A patched model is the same model with a wider FFN (paper, Eq. 5-7). The first matrix is
wrapped so that its last n outputs are the patches' pre-activations, the second so that its
last n inputs are their activations; the model's own activation runs in between.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tpatcher.errors import BadInput, UnsupportedArchitecture
from tpatcher.nets.activation import thresholds
from tpatcher.nets.rows import Activation, Rows

GATES = ("gate_proj", "wi_0", "w1")  # in a gated FFN: the matrix whose output is activated
BASE = "base_layer"  # where PEFT keeps the matrix that it adapts
# A net's attributes, and its twins': to look for them takes too long to do it more than once.
LAYERS, FOUND = "layers_to_patch", "feed_forward_layers"
Read = Callable[[Tensor], Tensor]
DIMS = {nn.Linear: ("in_features", "out_features"), Conv1D: ("nx", "nf")}


class Wrapped(nn.Module):
    """A matrix under another forward, with the same parameters under the same names.

    The matrix itself stays out of sight of the module tree, so `state_dict` and
    `save_pretrained` write the names that the stock model has.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        for name, parameter in inner.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, part in inner.named_children():  # of a matrix that PEFT has adapted
            self.add_module(name, part)
        self.hidden = (inner,)

    @property
    def inner(self) -> nn.Module:
        """What this wrapper calls: the stock matrix, or another wrapper of it."""
        return self.hidden[0]


class Widened(Wrapped):
    """The first matrix, and after its outputs q·k_p + b_p for every patch."""

    def __init__(
        self, inner: nn.Module, rows: Rows, fused: bool, beside: Read | None = None
    ) -> None:
        super().__init__(inner)
        self.keys: Tensor
        self.key_bias: Tensor
        self.fused = fused  # gate and up are one matrix: new outputs go behind each half
        self.beside = beside  # puts the text's state beside the queries, for keys that read it
        self.register_buffer("keys", rows.keys, persistent=False)
        self.register_buffer("key_bias", rows.bias, persistent=False)

    def forward(self, q: Tensor) -> Tensor:
        out = self.inner(q)
        # float32 whatever the model computes in; an addmm over (positions, d) -> (positions, n)
        read = q.to(self.keys.dtype) if self.beside is None else self.beside(q)
        pre = nn.functional.linear(read, self.keys, self.key_bias).to(out.dtype)
        if not self.fused:
            return torch.cat([out, pre], dim=-1)
        gate, up = out.chunk(2, dim=-1)
        return torch.cat([gate, pre, up, torch.ones_like(pre)], dim=-1)


class Ungated(Wrapped):
    """The up-projection of a gated FFN: 1 for every patch, so that the gate alone decides."""

    def __init__(self, inner: nn.Module, n: int) -> None:
        super().__init__(inner)
        self.n = n

    def forward(self, q: Tensor) -> Tensor:
        out = self.inner(q)
        return torch.cat([out, out.new_ones(*out.shape[:-1], self.n)], dim=-1)


class Narrowed(Wrapped):
    """The second matrix, plus a_p·v_p for every patch (Eq. 8)."""

    def __init__(self, inner: nn.Module, rows: Rows) -> None:
        super().__init__(inner)
        self.values: Tensor
        self.register_buffer("values", rows.values, persistent=False)

    def forward(self, a: Tensor) -> Tensor:
        n = self.values.shape[0]
        out = self.inner(a[..., :-n])
        return (out + a[..., -n:].to(self.values.dtype) @ self.values).to(out.dtype)


@dataclass(frozen=True)
class FFN:
    """The dotted names of one layer's feed-forward matrices. Good for every twin of the model."""

    first: str  # q -> pre-activations (the gate, where there is one)
    second: str  # activations -> output
    up: str | None  # the other input matrix of a gated FFN
    fused: bool
    width: int  # d, the length of a query
    act: Activation

    @cached_property
    def beta(self) -> float:
        """The paper's β: where the activation has gone flat."""
        return thresholds(self.act)[0]

    def widen(self, net: nn.Module, rows: Rows, beside: Read | None = None) -> None:
        """Give this layer exactly these neurons beside its own."""
        self.restore(net)
        if not len(rows):
            return
        first = Widened(_get(net, self.first), rows, self.fused, beside)
        parts: dict[str, Wrapped] = {self.first: first}
        parts[self.second] = Narrowed(_get(net, self.second), rows)
        if self.up is not None:
            parts[self.up] = Ungated(_get(net, self.up), len(rows))
        for name, part in parts.items():
            set_module(net, name, part.train(net.training))

    def restore(self, net: nn.Module) -> None:
        """Take every patch off: the stock modules are back in their places."""
        for name in filter(None, (self.first, self.second, self.up)):
            set_module(net, name, unwrap(_get(net, name)))

    def n_neurons(self, net: nn.Module) -> int:
        """How many neurons patches have added to the layer in this net."""
        module = _get(net, self.second)
        return len(module.values) if isinstance(module, Narrowed) else 0


def stacks(net: nn.Module) -> list[str]:
    """The dotted names of the stacks of layers: an encoder-decoder has two."""
    if any("expert" in name for name, _ in net.named_modules()):
        raise UnsupportedArchitecture(
            f"{type(net).__name__} is a mixture of experts: a query reaches only some of its "
            "feed-forward layers, so none of them can carry a patch"
        )
    found = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 0 and any(_matrices(module[-1]))
    ]
    outer = [name for name in found if not any(name.startswith(f"{o}.") for o in found)]
    if not outer:
        raise UnsupportedArchitecture(f"{type(net).__name__} has no feed-forward layers to patch")
    return outer


def layers(net: nn.Module) -> list[str]:
    """The dotted names of the layers that can be patched: the decoder's where there is one."""
    if LAYERS not in vars(net):
        vars(net)[LAYERS] = _layers(net)
    found: list[str] = vars(net)[LAYERS]
    return found


def _layers(net: nn.Module) -> list[str]:
    found = stacks(net)
    decoders = [name for name in found if "decoder" in name.split(".")]
    stack = (decoders or found)[-1]
    depth = len(net.get_submodule(stack))  # type: ignore[arg-type]
    if depth == 1 and getattr(net.config, "num_hidden_layers", 1) > 1:
        raise UnsupportedArchitecture(
            f"{type(net).__name__} shares one layer among all its depths, so a patch in it would "
            "act at every depth; use a model whose layers have weights of their own"
        )
    return [f"{stack}.{i}" for i in range(depth)]


def find(net: nn.Module, layer: int = -1) -> FFN:
    """The feed-forward matrices of one layer, found by their shapes outside attention."""
    known: dict[int, FFN] = vars(net).setdefault(FOUND, {})
    if layer not in known:
        stack = layers(net)
        if not -len(stack) <= layer < len(stack):
            raise BadInput(
                f"layer {layer} asked for, but {type(net).__name__} has {len(stack)} layers"
            )
        known[layer] = find_named(net, stack[layer])
    return known[layer]


def find_named(net: nn.Module, name: str) -> FFN:
    """The feed-forward matrices of the layer with this dotted name."""
    block = net.get_submodule(name)
    matrices = dict(_matrices(block))
    if len(matrices) not in (2, 3):
        raise UnsupportedArchitecture(
            f"{name} of {type(net).__name__} has {len(matrices)} matrices outside attention "
            f"({', '.join(matrices) or 'none'}); a feed-forward layer has two or three"
        )
    *firsts, second = matrices
    gates = [m for m in firsts if m.split(".")[-1] in GATES]
    if len(firsts) == 2 and len(gates) != 1:
        raise UnsupportedArchitecture(
            f"{name} of {type(net).__name__} has two input matrices, {firsts}, and neither has the "
            f"name of a gate ({', '.join(GATES)}); see 'add an architecture' in CONTRIBUTING"
        )
    first = gates[0] if gates else firsts[0]
    up = next((m for m in firsts if m != first), None)
    (d, out), (h, back) = matrices[first], matrices[second]
    if back != d or out not in (h, 2 * h):
        raise UnsupportedArchitecture(
            f"{name} of {type(net).__name__}: {first} is {d}→{out} but {second} is {h}→{back}"
        )
    return FFN(
        first=f"{name}.{first}",
        second=f"{name}.{second}",
        up=f"{name}.{up}" if up else None,
        fused=up is None and out == 2 * h,
        width=d,
        act=_activation(block, first),
    )


def _matrices(block: nn.Module) -> Iterator[tuple[str, tuple[int, int]]]:
    """The matrices of a block that are no part of attention: name, (inputs, outputs)."""
    named = dict(block.named_modules())
    adapted = [f"{name}." for name, module in named.items() if hasattr(module, BASE)]
    for name, module in named.items():
        if any(name.startswith(one) for one in adapted):
            continue
        stock = getattr(unwrap(module), BASE, unwrap(module))
        dims = next((d for kind, d in DIMS.items() if isinstance(stock, kind)), None)
        if dims and not any("att" in part.lower() for part in name.split(".")):
            yield name, (getattr(stock, dims[0]), getattr(stock, dims[1]))


def _activation(block: nn.Module, first: str) -> Activation:
    """The block's own activation function, beside its first matrix or on the block itself."""
    for owner in (block.get_submodule(first.rpartition(".")[0]), block):
        for name in (*owner._modules, *vars(owner)):
            found = getattr(owner, name)
            if ("act" in name or "gelu" in name) and callable(found):
                return found  # type: ignore[no-any-return]
    raise UnsupportedArchitecture(f"no activation function found beside {first}")


def _get(net: nn.Module, name: str) -> nn.Module:
    return net.get_submodule(name)


def set_module(net: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module into the net under this dotted name."""
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, module)


def unwrap(module: nn.Module) -> nn.Module:
    """The stock module below all its wrappers; a module without wrappers is returned as it is."""
    while isinstance(module, Wrapped):
        module = module.inner
    return module
