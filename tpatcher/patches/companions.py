"""Nets that an editor trains beside the model, and that its patches name: SERAC's scope encoder and
counterfactual model.

Such a net is a thousand times larger than a patch, and all patches of an editor share it. So a
patch holds its name, which is a hash of its contents, and the net stays with the editor.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tpatcher.errors import NotFitted

PREFIX = "trained:"


@dataclass(frozen=True)
class Companion:
    """A trained net and its tokenizer; None: the edited model's."""

    net: nn.Module
    tokenizer: Any = None


_KNOWN: dict[str, Companion] = {}


def keep(net: nn.Module, tokenizer: Any = None) -> str:
    """Make a net known to this process, and return its name."""
    digest = hashlib.sha256()
    for key, tensor in net.state_dict().items():
        digest.update(key.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    name = f"{PREFIX}{digest.hexdigest()[:16]}"
    _KNOWN.setdefault(name, Companion(net.eval().requires_grad_(False), tokenizer))
    return name


def get(name: str) -> Companion:
    """The net of this name."""
    if name not in _KNOWN:
        raise NotFitted(
            f"a patch needs the net {name}, which its editor holds: load that editor and call "
            "attach(model)"
        )
    return _KNOWN[name]
