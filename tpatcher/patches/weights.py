"""Patches that change weights: fine-tuning, MEND, KE, LoRA.

A patch holds the new values, not the differences. Off and on is a swap of Parameters on the
modules, never a write into a tensor: twins keep theirs, and what comes off is bit for bit what
was there before.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tpatcher.errors import WrongBase
from tpatcher.nets import ffn
from tpatcher.patches.base import NAMED, Patch


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights(Patch):
    """New values of some of the net's parameters, by their stock names."""

    kind: ClassVar[str] = "weights"
    removable_alone: ClassVar[bool] = False  # newer ones were computed on top of it
    values: Mapping[str, Tensor] = field(metadata={NAMED: True})

    def __post_init__(self) -> None:
        for name, tensor in self.values.items():
            if not torch.isfinite(tensor).all():
                raise ValueError(f"{name} holds NaN or infinity")
        super().__post_init__()

    def check(self, net: nn.Module) -> None:
        known = dict(net.named_parameters())
        for name, tensor in self.values.items():
            if name not in known:
                raise WrongBase(f"patch {self.id} changes {name}, which this model does not have")
            if known[name].shape != tensor.shape:
                raise WrongBase(
                    f"patch {self.id} holds {name} as {tuple(tensor.shape)}, but this model has it "
                    f"as {tuple(known[name].shape)}"
                )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        old, new = newest(before), newest(after)
        stock: Stock = vars(net).get("stock_weights", Stock())
        changed = {n: v for n, v in new.items() if old.get(n) is not v}
        if changed or old.keys() - new.keys():
            now = dict(net.named_parameters())
            kept = {n: stock.get(n, now[n]) for n in new}
            swap(net, {n: replacement(now[n], v) for n, v in changed.items()})
            swap(net, {n: back_on_device(stock[n], now[n]) for n in old.keys() - new.keys()})
            # outside the module tree, so that neither state_dict nor parameters() show it
            vars(net)["stock_weights"] = Stock(kept)


class Stock(dict[str, nn.Parameter]):
    """The parameters that were swapped out; twins share them as they share all tensors."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Stock":
        return self


def newest(patches: Iterable[Patch]) -> Mapping[str, Tensor]:
    """The values that count: for each name, those of the newest patch that changes it."""
    return ChainMap(*(dict(p.values) for p in reversed(list(patches)) if isinstance(p, Weights)))


def swap(net: nn.Module, values: Mapping[str, nn.Parameter]) -> None:
    """Put other parameters into the places of those with these names, tied places too."""
    if not values:
        return
    now = dict(net.named_parameters())
    fresh = {id(now[name]): parameter for name, parameter in values.items()}
    for module in all_modules(net):
        for key, parameter in module._parameters.items():
            if id(parameter) in fresh:
                module._parameters[key] = fresh[id(parameter)]


def all_modules(net: nn.Module) -> Iterator[nn.Module]:
    """Every module, those below a wrapper too: both hold the same parameters."""
    for module in net.modules():
        while isinstance(module, ffn.Wrapped):
            yield module
            module = module.hidden[0]
        yield module


def replacement(parameter: nn.Parameter, value: Tensor) -> nn.Parameter:
    """A parameter with another value, where and in what the old one is."""
    made = value.to(parameter.device, parameter.dtype)
    return nn.Parameter(made, requires_grad=parameter.requires_grad)


def back_on_device(stock: nn.Parameter, now: nn.Parameter) -> nn.Parameter:
    """A stock parameter again; the net may have moved to another device since."""
    return (
        stock if stock.device == now.device else replacement(stock, stock.detach().to(now.device))
    )


def matrices(net: nn.Module, within: str = "") -> dict[str, nn.Parameter]:
    """The weight matrices of the layers, by name: no bias, norm, embedding, pooler or head.

    `within` is the dotted name of one layer, to have only that one's.
    """
    stacks = [name for name, part in net.named_modules() if isinstance(part, nn.ModuleList)]
    found = {}
    for name, module in net.named_modules():
        stock = module.inner if isinstance(module, ffn.Wrapped) else module
        inside = any(name.startswith(f"{stack}.") for stack in stacks)
        if inside and isinstance(stock, tuple(ffn.DIMS)) and f"{name}.".startswith(within):
            found[f"{name}.weight"] = module.weight
    return found  # type: ignore[return-value]


def last_layer(net: nn.Module) -> str:
    """The `within` of the last layer."""
    return f"{ffn.layers(net)[-1]}."
