"""The answer positions of one example, and the logits there under further neurons."""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from tpatcher.models.model import Model
from tpatcher.models.traces import look
from tpatcher.nets import ffn
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin
from tpatcher.patches.neurons import rows


class Positions:
    """The answer positions of one example, and the logits there under any further neurons."""

    def __init__(self, model: Model, text: str, target: Sequence[int], layer: int = -1) -> None:
        self.model, self.layer = model, layer
        self.forced: TeacherForced = model.task.force([text], [target])
        self.place = ffn.find(model.net, layer)
        self.seen, self.bare = look(model, self.forced, layer)
        self.worn = tuple(t.to(model.net.device) for t in rows(model.patches, layer))
        self.fast = layer == -1 and model.tail_is_exact
        if not self.fast:
            self.net = twin(model.net)
        if self.fast:
            self.states = self.seen.states
            assert model.tail is not None
            self.tail = model.tail
            if len(self.worn[0]):
                self.states = self.tail.shift(self.states, self.delta(*self.worn))

    def delta(self, keys: Tensor, bias: Tensor, values: Tensor) -> Tensor:
        """What neurons add to the feed-forward output: Act(q·K + b)·V."""
        return self.place.act(self.seen.queries @ keys.T + bias) @ values

    def logits(self, keys: Tensor, bias: Tensor, values: Tensor) -> Tensor:
        """Logits (P, labels or tokens) of the model with these neurons on top of its patches."""
        if self.fast:
            return self.tail(self.tail.shift(self.states, self.delta(keys, bias, values)))
        net = self.net
        more = [torch.cat(two) if len(two[0]) else two[1] for two in
                zip(self.worn, (keys, bias, values), strict=True)]  # fmt: skip
        self.place.widen(net, *more)
        inputs = {k: v.to(self.model.net.device) for k, v in self.forced.inputs.items()}
        return self.model.task.logits(net(**inputs), self.forced).float()

    def now(self) -> Tensor:
        """Logits of the model as it is, as greedy decoding sees them."""
        if self.layer != -1 or not len(self.worn[0]):
            return self.bare
        if self.fast:
            return self.process(self.tail(self.states))
        inputs = {k: v.to(self.model.net.device) for k, v in self.forced.inputs.items()}
        return self.process(self.model.task.logits(self.model.net(**inputs), self.forced).float())

    def repeated(self, text: str, target: Sequence[int], n: int) -> "Positions":
        """The same positions n times over in one batch, with dropout on: what training runs."""
        other = copy(self)
        other.forced = self.model.task.force([text] * n, [target] * n)
        other.net = twin(self.model.net).train()
        return other

    def process(self, logits: Tensor) -> Tensor:
        """Logits as greedy decoding sees them."""
        return self.model.task.as_decoded(self.model.net, self.forced, logits)
