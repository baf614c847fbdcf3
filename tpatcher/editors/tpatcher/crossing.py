"""Where between what it must leave alone and the mistake a neuron begins to fire."""

import math
from dataclasses import dataclass, replace

from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.models.model import Model
from tpatcher.nets.causal import Causal


@dataclass(frozen=True)
class Crossing:
    """Where a neuron begins to fire, and how carefully its key is found."""

    fraction: float  # f: 0 at the memory, 1 at the mistake
    duals: int  # times that the dual is solved, each with one more pass over the memory
    # Standard deviations of the memory's responses that a neuron begins to fire above their mean,
    # or else the contrast texts are too near: it would fire somewhere in any other text.
    rarity: float = 0.0
    drop: float = 0.0  # by how much f falls for each doubling of the memory beyond a usual one
    least: float = 0.0  # and no further than to this
    # Share of the margin by which the example's other positions must lie beyond where the neuron
    # begins to fire; 1: as far as anything else.
    beyond: float = 1.0

    @property
    def own_margin(self) -> float:
        """How much of the margin a key must keep from the example's other positions."""
        return min(1.0, 1 - self.fraction + self.beyond)


# A second dual gives zsRE 0.09 more GR at the same TestR, and FEVER nothing. The more queries a key
# stays clear of, the more seldom others come near it; with labels that gains little.
LABELS, TOKENS = Crossing(0.47, duals=1), Crossing(0.5, duals=2, drop=0.1, least=0.2)
# Where the text's state is read too. Of FEVER's whole edit set, by the sum over a claim: f = 0.5 GR
# 0.888, TestR 0.9964, 0.55 0.851 and 0.9984.
LABELS_BY_TEXT = Crossing(0.53, duals=1)
# Contrast texts are harder for a key than they will be for its neuron, so it fires close to them.
# Of 192 zsRE edits, a memory of 5,000 questions, 32 sisters and 4 neighbours, GR and Sisters:
# f = 0.2 0.835 and 0.994, 0.1 0.873 and 0.989; 24 and 6: 0.05 0.881 and 0.978, with a sentence
# encoder beside the model's own states 0.904 and 0.938.
TOKENS_BY_TEXT = Crossing(0.05, duals=2)
# The state of a decoder's text, chosen on thirty zsRE questions: at 0.4 and 0.5 their rephrasings
# were right in 0.93 and 0.87, no unrelated answer changed, and questions like them were kept in
# 0.55 and 0.65.
DECODED_BY_TEXT = Crossing(0.45, duals=2)
# The same held against namesakes. Of 299 WikiBigEdit questions (of rows that no run reports on), at
# 0.65, 0.7, 0.75 and 0.8 rephrasings fired at every token in 0.93, 0.90, 0.87 and 0.84, and of
# unrelated questions 0.96, 0.96, 0.96 and 0.98 fired none anywhere along their answers. Where the
# state is of what was read last, as without a chat template, a neuron of rarity 5.8 fired all along
# a piece of code. An answer is right only if all of its neurons fire, and what tells its positions
# apart is never quite the same in a rephrasing: with the whole margin between them 0.88, 0.86, 0.82
# and 0.75 of the rephrasings fired at every token. Really asked, f = 0.75 and 0.15 beyond have Gen
# 0.80 and Loc 0.97 among a thousand, 0.7 and 0.4 have 0.85 and 0.94 among 400.
AMONG_NAMESAKES = Crossing(0.75, duals=2, rarity=8.0, beyond=0.15)
USUAL_SIZE = 45_000  # queries of a memory


def usual(model: Model, memory: Memory, namesakes: bool = False) -> Crossing:
    """The usual crossing of keys of this model that are held against this memory."""
    if not model.task.generates:
        return LABELS if memory.reads == "position" else LABELS_BY_TEXT
    if memory.reads == "position":
        found = TOKENS
    elif isinstance(model.task, Causal):
        found = AMONG_NAMESAKES if namesakes else DECODED_BY_TEXT
    else:
        found = TOKENS_BY_TEXT
    return _with_memory(found, memory.n_answers)


def _with_memory(crossing: Crossing, queries: int) -> Crossing:
    """A crossing for a memory of this many queries.

    >>> sizes = (8_000, 45_000, 180_000, 10**7)
    >>> [round(_with_memory(TOKENS, n).fraction, 2) for n in sizes]
    [0.5, 0.5, 0.3, 0.2]
    """
    doublings = max(0.0, math.log2(max(1, queries) / USUAL_SIZE))
    fraction = max(crossing.least, crossing.fraction - crossing.drop * doublings)
    return replace(crossing, fraction=fraction)
