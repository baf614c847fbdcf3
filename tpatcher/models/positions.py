"""The answer positions of one example, and the logits there under any further neurons.

Of the last layer, further neurons are added to cached states (`CachedPositions`); of any other
layer, or where the model's tail is not known, the model is run (`RunPositions`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from tpatcher.models.model import Model
from tpatcher.models.traces import Trace, trace_forced
from tpatcher.nets import ffn, reading
from tpatcher.nets.reading import Reads
from tpatcher.nets.rows import Rows
from tpatcher.nets.tail import Tail
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin

Followed = tuple[Trace, Tensor]  # an example's trace, and its logits as greedy decoding sees them


class Positions(ABC):
    """One example followed along its target: its trace, and logits under further neurons."""

    def __init__(
        self,
        model: Model,
        text: str,
        target: Sequence[int],
        layer: int,
        reads: Reads,
        known: Followed | None = None,
    ) -> None:
        self.model, self.layer, self.ffn = model, layer, ffn.find(model.net, layer)
        self.text, self.target, self.reads = text, target, reads
        self.rows = model.rows(layer)  # what the model's patches have in this layer already
        if self.rows.width > self.ffn.width:
            self.reads = "text"  # they do, whatever new ones will read
        followed = known or trace_forced(model, self.forced, layer, self.reads)
        self.trace, self.before_last = followed

    @cached_property
    def forced(self) -> TeacherForced:
        """What runs the model along the target."""
        return self.model.task.force([self.text], [self.target])

    @abstractmethod
    def logits(self, rows: Rows) -> Tensor:
        """Logits (P, labels or tokens) of the model with these neurons after its own."""

    @abstractmethod
    def now(self) -> Tensor:
        """Logits of the model as it is, as greedy decoding sees them."""

    def as_decoded(self, logits: Tensor) -> Tensor:
        """Logits as greedy decoding sees them; a label's as they are."""
        if not self.model.task.generates:
            return logits
        return self.model.task.as_decoded(self.model.net, self.forced, logits)


class CachedPositions(Positions):
    """Positions whose states are known: new logits need the tail alone."""

    def __init__(
        self,
        model: Model,
        text: str,
        target: Sequence[int],
        reads: Reads,
        known: Followed | None = None,
    ) -> None:
        super().__init__(model, text, target, -1, reads, known)
        assert model.tail is not None
        self.tail: Tail = model.tail
        self.states = self.shifted(self.trace.states, self.trace.queries)

    def shifted(self, states: Tensor, queries: Tensor) -> Tensor:
        """States (P, s) of these queries with what the model's own patches add there."""
        if not len(self.rows):
            return states
        return self.tail.shift(states, self.rows.delta(self.ffn.act, queries))

    def states_with(self, rows: Rows) -> Tensor:
        """What enters the tail of the model with these neurons after its own, (P, s)."""
        return self.tail.shift(self.states, rows.delta(self.ffn.act, self.trace.queries))

    def logits(self, rows: Rows) -> Tensor:
        return self.tail(self.states_with(rows))

    def now(self) -> Tensor:
        if torch.equal(self.states, self.trace.states):  # no patch fires
            return self.before_last
        return self.as_decoded(self.tail(self.states))


class RunPositions(Positions):
    """Positions whose logits come from running the model, `repeats` times in one batch."""

    def __init__(
        self,
        model: Model,
        text: str,
        target: Sequence[int],
        layer: int,
        reads: Reads,
        repeats: int = 1,
    ) -> None:
        super().__init__(model, text, target, layer, reads)
        self.net = twin(model.net)
        if repeats > 1:
            self.forced = model.task.force([text] * repeats, [target] * repeats)

    def with_dropout(self, repeats: int) -> "RunPositions":
        """The same positions several times over with dropout on: what training runs."""
        other = RunPositions(self.model, self.text, self.target, self.layer, self.reads, repeats)
        other.net.train()
        return other

    def logits(self, rows: Rows, encoded: Tensor | None = None) -> Tensor:
        """With the encoder's states of each repeat `encoded`, the decoder alone is run."""
        reading.widen(self.net, self.ffn, self.rows + rows)
        return self._run(self.net, encoded)

    def now(self) -> Tensor:
        if self.layer != -1 or not len(self.rows):
            return self.before_last
        return self.as_decoded(self._run(self.model.net))

    def _run(self, net: torch.nn.Module, encoded: Tensor | None = None) -> Tensor:
        output = net(**self.forced.on(self.model.net.device), **given_encoded(encoded))
        return self.model.task.logits(output, self.forced).float()


def given_encoded(states: Tensor | None) -> dict[str, Any]:
    """How an encoder-decoder is told the states of its encoder, if they are known."""
    if states is None:
        return {}
    return {"encoder_outputs": BaseModelOutput(last_hidden_state=states)}


def positions(
    model: Model,
    text: str,
    target: Sequence[int],
    layer: int = -1,
    reads: Reads = "position",
    known: Followed | None = None,
) -> Positions:
    """The answer positions of an example, by the cheapest way that is exact.

    What is `known` of it is not looked for again.
    """
    if layer == -1 and model.tail_is_exact:
        return CachedPositions(model, text, target, reads, known)
    return RunPositions(model, text, target, layer, reads)


@torch.no_grad()
def follow(
    model: Model, texts: Sequence[str], targets: Sequence[Sequence[int]], reads: Reads
) -> list[Followed]:
    """Texts followed along their targets in one batch, each as if it had been followed alone."""
    seen, logits = trace_forced(model, model.task.force(texts, targets), -1, reads)
    found = []
    for i in range(len(texts)):
        rows = (seen.owner == i).nonzero()[:, 0]
        own = seen.at(rows)
        own.owner = torch.zeros_like(own.owner)
        found.append((own, logits[rows.to(logits.device)]))
    return found
