"""The KL patch, an ablation of T-Patcher's (paper, Table 3): l_m replaced by a KL divergence.

The divergence is that of the model with the new neurons from the model just before this edit, with
the patches it has by then: so the term does not ask a new patch to undo older ones. It is worked
out on cached states, of memory queries that are drawn anew at every step and of past edits.
"""

import random
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
    mistake: Mistake, memory: Memory, past: PastFixes, batch: int = 512, seed: int = 0
) -> Callable[[Rows], Tensor]:
    """KL(f_{t-1} ‖ f_t) as a loss of new neurons; each call draws memory queries and past edits.

    Past edits are 100 at most, and no more than the batch has of the memory.
    """
    here = mistake.positions
    if not isinstance(here, CachedPositions) or memory.states is None:
        raise BadInput(
            "the KL patch needs cached states: a memory collected at the last layer (layer=-1) of "
            "a model whose tail is known"
        )
    held, device = memory.states, mistake.model.net.device
    draw = random.Random(f"{seed} {mistake.example.text}")  # other queries in every edit

    def some(rows: int, limit: int) -> list[int]:
        return draw.sample(range(rows), min(limit, rows))

    def loss(rows: Rows) -> Tensor:
        known, old = some(memory.split, batch), some(len(past.queries), min(batch, 100))
        queries = torch.cat(
            [memory.queries[known].float().to(device), past.queries[old].to(device)]
        )
        states = torch.cat([held[known].float().to(device), past.states[old].to(device)])
        with torch.no_grad():
            states = here.shifted(states, queries)
            before = here.tail(states)
        delta = rows.delta(here.ffn.act, queries)
        return kl(before, here.tail(here.tail.shift(states, delta)))

    return loss
