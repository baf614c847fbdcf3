"""Patches that change weights: what fine-tuning, MEND, KE and LoRA leave behind.

A patch holds the new values, not the differences. Applying it and taking it off swap whole
Parameters on the modules and never write into a tensor: twins keep theirs, and the model without
the patch is bit for bit what it was before.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from tpatcher.errors import NotRemovable, WrongBase
from tpatcher.nets import ffn
from tpatcher.patches.base import NAMED, Patch


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights(Patch):
    """New values of some of the net's parameters, by the names that the stock model has."""

    kind: ClassVar[str] = "weights"
    removable_alone: ClassVar[bool] = False  # newer patches were computed on top of it
    values: Mapping[str, Tensor] = field(metadata={NAMED: True})
    let_go: tuple[str, ...] = ()  # names whose values a newer patch replaced, see `newest_only`

    def __post_init__(self) -> None:
        object.__setattr__(self, "let_go", tuple(self.let_go))
        super().__post_init__()

    @property
    def meta(self) -> dict[str, Any]:
        found = super().meta
        if not self.let_go:
            del found["let_go"]  # as all patches were written before some let values go
        return found

    def check(self, net: nn.Module) -> None:
        if not self.values:
            return
        parameters = dict(net.named_parameters())
        for name, tensor in self.values.items():
            if name not in parameters:
                raise WrongBase(f"patch {self.id} changes {name}, which this model does not have")
            if parameters[name].shape != tensor.shape:
                raise WrongBase(
                    f"patch {self.id} holds {name} as {tuple(tensor.shape)}, but this model has it "
                    f"as {tuple(parameters[name].shape)}"
                )

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        _check_let_go(after)
        old, new = _effective(before), _effective(after)
        changed = {name: value for name, value in new.items() if old.get(name) is not value}
        restored = old.keys() - new.keys()
        if not changed and not restored:
            return
        stock: _StockParameters = vars(net).get("stock_weights", _StockParameters())
        current = dict(net.named_parameters())
        swap(net, {n: _replacement(current[n], value) for n, value in changed.items()})
        swap(net, {n: _replacement(current[n], stock[n]) for n in restored})
        # in vars(net), outside the module tree: neither state_dict nor parameters() show it
        vars(net)["stock_weights"] = _StockParameters({n: stock.get(n, current[n]) for n in new})


class _StockParameters(dict[str, nn.Parameter]):
    """The model's own parameters that patches have replaced, by name.

    A copy of a net (a twin) shares them, as it shares all tensors.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "_StockParameters":
        return self


def _effective(patches: Iterable[Patch]) -> Mapping[str, Tensor]:
    """The value of each changed parameter: that of the newest patch which changes it."""
    return ChainMap(*(dict(p.values) for p in reversed(list(patches)) if isinstance(p, Weights)))


def newest_only(patches: Sequence[Patch]) -> tuple[Patch, ...]:
    """The same patches, of which only the newest hold weights: those that the net really has.

    A long run of edits would otherwise hold the whole model once per edit. Older patches keep
    their examples and ids, but the newer ones can no longer be taken off by themselves.
    """
    kept: list[Patch] = []
    newer: set[str] = set()
    for patch in reversed(patches):
        if isinstance(patch, Weights):
            names = patch.values.keys()
            if replaced := names & newer:
                values = {n: value for n, value in patch.values.items() if n not in replaced}
                gone = tuple(sorted({*patch.let_go, *replaced}))
                patch = replace(patch, values=values, let_go=gone)
            newer |= names
        kept.append(patch)
    return tuple(reversed(kept))


def _check_let_go(patches: Iterable[Patch]) -> None:
    """Refuse patches whose net would need values that were let go."""
    needed: dict[str, str] = {}
    for patch in patches:
        if isinstance(patch, Weights):
            needed |= dict.fromkeys(patch.let_go, patch.id)
            for name in patch.values:
                needed.pop(name, None)
    if needed:
        name, id = next(iter(needed.items()))
        raise NotRemovable(
            f"patch {id} no longer holds its value of {name}, because a newer patch replaced it: "
            "take all such patches off together, or edit the model again"
        )


def swap(net: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    """Replace the parameters of these names, wherever the net uses them (they may be tied)."""
    if not parameters:
        return
    current = dict(net.named_parameters())
    fresh = {id(current[name]): parameter for name, parameter in parameters.items()}
    for module in _all_modules(net):
        for key, parameter in module._parameters.items():
            if id(parameter) in fresh:
                module._parameters[key] = fresh[id(parameter)]


def _all_modules(net: nn.Module) -> Iterator[nn.Module]:
    """Every module of the net, including those below wrappers, which hold the same parameters."""
    for module in net.modules():
        while isinstance(module, ffn.Wrapped):
            yield module
            module = module.inner
        yield module


def _replacement(parameter: nn.Parameter, value: Tensor) -> nn.Parameter:
    """A parameter with this value, on the old one's device and in its dtype.

    A value that is such a parameter already, as a stock one is, is itself returned.
    """
    made = value.to(parameter.device, parameter.dtype)
    if isinstance(made, nn.Parameter):
        return made
    return nn.Parameter(made.detach(), requires_grad=parameter.requires_grad)


def matrices(net: nn.Module, layers: Literal["last", "all"] = "all") -> dict[str, nn.Parameter]:
    """The weight matrices of the layers, by name: no bias, norm, embedding, pooler or head.

    `layers="last"` gives those of the last layer only.
    """
    if layers == "last":
        stacks = [ffn.layers(net)[-1]]
    else:
        stacks = [name for name, part in net.named_modules() if isinstance(part, nn.ModuleList)]
    found = {}
    for name, module in net.named_modules():
        inside = any(name.startswith(f"{stack}.") for stack in stacks)
        if inside and isinstance(ffn.unwrap(module), tuple(ffn.DIMS)):
            found[f"{name}.weight"] = module.weight
    return found  # type: ignore[return-value]
