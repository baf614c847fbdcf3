"""The KL patch, an ablation of T-Patcher's (paper, Table 3): l_m replaced by a KL divergence.

On cached states: what the initial model makes of memory queries and of past edits, against what
it makes of them with all neurons, the new ones included.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.errors import BadInput
from tpatcher.models.positions import CachedPositions
from tpatcher.models.training import kl
from tpatcher.nets.rows import Rows


def kl_loss(
    mistake: Mistake, memory: Memory, past: PastFixes, batch: int = 512, most: int = 100,
    seed: int = 0,
) -> Callable[[Rows], Tensor]:  # fmt: skip
    """KL(f0 ‖ f) over a batch of memory queries and of past edits, as a loss of new neurons."""
    here = mistake.positions
    if not isinstance(here, CachedPositions) or memory.states is None:
        raise BadInput(
            "the KL patch needs cached states: a memory collected at the last layer (layer=-1) of "
            "a model whose tail is known"
        )
    draw = torch.Generator().manual_seed(seed)
    some = torch.randperm(memory.split, generator=draw)[:batch]
    old = torch.randperm(len(past.queries), generator=draw)[:most]
    device = mistake.model.net.device
    queries = torch.cat([memory.queries[some].float(), past.queries[old]]).to(device)
    states = torch.cat([memory.states[some].float(), past.states[old]]).to(device)
    with torch.no_grad():
        initial = here.tail(states)
        states = here.shifted(states, queries)

    def loss(rows: Rows) -> Tensor:
        delta = rows.delta(here.ffn.act, queries)
        return kl(initial, here.tail(here.tail.shift(states, delta)))

    return loss
