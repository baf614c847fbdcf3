"""The KL patch, an ablation of T-Patcher's (paper, Table 3): l_m replaced by a KL divergence.

On cached states: what the initial model makes of memory queries and of past edits, against what
it makes of them with all neurons, the new ones included.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, Past
from tpatcher.errors import BadInput
from tpatcher.models.training import kl


def kl_loss(
    mistake: Mistake, memory: Memory, past: Past, batch: int = 512, most: int = 100, seed: int = 0
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """KL(f0 ‖ f) over a batch of memory queries and of past edits, as a loss of new neurons."""
    at = mistake.at
    if not at.fast or memory.states is None:
        raise BadInput(
            "the KL patch needs cached states: a memory collected at the last layer (layer=-1) of "
            "a model whose tail is known"
        )
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randperm(memory.split, generator=draw)[:batch]
    old = torch.randperm(len(past.queries), generator=draw)[:most]
    device = mistake.model.net.device
    queries = torch.cat([memory.queries[rows].float(), past.queries[old]]).to(device)
    states = torch.cat([memory.states[rows].float(), past.states[old]]).to(device)
    with torch.no_grad():
        initial = at.tail(states)
        if len(at.worn[0]):
            worn = at.place.act(queries @ at.worn[0].T + at.worn[1]) @ at.worn[2]
            states = at.tail.shift(states, worn)

    def loss(keys: Tensor, bias: Tensor, values: Tensor) -> Tensor:
        delta = at.place.act(queries @ keys.T + bias) @ values
        return kl(initial, at.tail(at.tail.shift(states, delta)))

    return loss
