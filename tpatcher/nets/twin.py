"""Twins: new modules over the same tensors."""

from typing import TypeVar, cast

from torch import nn

Net = TypeVar("Net", bound=nn.Module)


def twin(net: Net) -> Net:
    """New modules over the same tensors, in milliseconds: change one, the other stays."""
    made: dict[int, nn.Module] = {}

    def other(module: nn.Module) -> nn.Module:
        if id(module) in made:
            return made[id(module)]
        made[id(module)] = new = module.__class__.__new__(module.__class__)
        for name, thing in module.__dict__.items():
            if isinstance(thing, dict | set):  # parameters, buffers, hooks
                thing = thing.copy()
            elif isinstance(thing, nn.Module):
                thing = other(thing)
            elif type(thing) in (tuple, list):
                thing = type(thing)(other(t) if isinstance(t, nn.Module) else t for t in thing)
            new.__dict__[name] = thing
        new._modules = {k: c if c is None else other(c) for k, c in module._modules.items()}
        return new

    return cast(Net, other(net))
