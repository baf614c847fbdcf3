"""Which examples a patched model still answers rightly, mostly without running it."""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from tpatcher.example import Example
from tpatcher.models.model import Model, is_last
from tpatcher.models.traces import Trace, own
from tpatcher.nets import ffn
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons, rows


class AnswerCache:
    """Examples with the answers of the unpatched model, from which those of a patched one follow.

    Where a patched model still prefers the same token at every position of the cached path, its
    answer is the same; where not, or where it is too close to call, the model itself is run.
    """

    def __init__(
        self,
        model: Model,
        examples: Sequence[Example],
        batch: int = 32,
        seen: Trace | None = None,
        progress: bool = False,
    ) -> None:
        """`seen` are the paths themselves, where they are known from an earlier time."""
        self.examples = list(examples)
        self.bare = model.twin()
        self.bare.set_patches(p for p in model.patches if not is_last(p))
        self.usable = self.bare.tail_is_exact
        self.ran = 0  # how many examples the last `correct` really ran
        self.targets: list[list[int]] = []
        self.at: dict[int, Tensor] = {}
        self.base: list[bool] = []  # whether each is right on the unpatched model
        self.unsure: set[int] = set()
        self.ids: tuple[str, ...] = ()
        self.seen = Trace(*(torch.empty(0) for _ in fields(Trace)))
        self.delta = torch.empty(0)
        if self.usable and self.examples:
            self._begin(model, seen or own(self.bare, self.examples, batch, progress))
        elif not self.usable:
            self.base = model.correct(self.examples)

    def _begin(self, model: Model, seen: Trace) -> None:
        self.seen = seen
        self.delta = torch.zeros_like(seen.queries)
        spans = torch.arange(len(seen.owner)).split(seen.owner.bincount().tolist())
        self.at = dict(enumerate(spans))  # the positions of each example
        self.targets = [seen.tokens[at].tolist() for at in spans]
        answers = self.bare.task.decode(self.targets)
        self.base = [model.accepts(e, a) for e, a in zip(self.examples, answers, strict=True)]
        # a cached path that its own logits do not bear out by more than rounding tells nothing
        assert model.tail is not None
        unsure = (self.seen.best != self.seen.tokens) | (self.seen.gap < model.tail.rounding)
        self.unsure = set(self.seen.owner[unsure].tolist())

    def add(self, example: Example, patch: Patch | None) -> None:
        """One more example: a past fix, whose path is the right answer that its patch was made for.

        Without states to follow it by, the model itself will be run for all examples.
        """
        self.examples.append(example)
        known = isinstance(patch, Neurons) and is_last(patch) and patch.states.numel()
        self.usable = self.usable and bool(known)
        if not self.usable or not isinstance(patch, Neurons):
            return
        n, at = len(self.examples) - 1, len(self.seen.tokens)
        more = Trace(
            patch.queries, patch.states, patch.tokens, torch.full_like(patch.tokens, n),
            best=patch.tokens, gap=torch.zeros(len(patch.tokens)),
        )  # fmt: skip
        self.seen = Trace.join([self.seen, more]) if at else more
        self.at[n] = torch.arange(at, at + len(patch.tokens))
        self.targets.append(patch.tokens.tolist())
        self.base.append(True)
        self.ids = ()  # what the patches add is not known yet at the new positions

    @torch.no_grad()
    def correct(self, model: Model) -> list[bool]:
        """Whether each example is right now: equal to `model.correct(examples)`, but cheap."""
        if not (self.usable and model.tail_is_exact):
            self.ran = len(self.examples)
            return model.correct(self.examples)
        self._follow(model)
        rerun = sorted(self._moved(model) | self.unsure)
        self.ran = len(rerun)
        out = list(self.base)
        real = model.correct([self.examples[i] for i in rerun])
        for i, right in zip(rerun, real, strict=True):
            out[i] = right
        return out

    def _follow(self, model: Model) -> None:
        """Bring `delta`, the change of every feed-forward output, up to the model's patches."""
        ids = tuple(p.id for p in model.patches)
        known = len(self.ids) if ids[: len(self.ids)] == self.ids else 0
        if not known or len(self.delta) != len(self.seen.queries):
            known = 0
            self.delta = torch.zeros_like(self.seen.queries)
        keys, bias, values = (t.to(self.delta.device) for t in rows(model.patches[known:]))
        act = ffn.find(model.net).act
        if len(keys):
            for block in range(0, len(self.delta), 16384):
                q = self.seen.queries[block : block + 16384]
                self.delta[block : block + 16384] += act(q @ keys.T + bias) @ values
        self.ids = ids

    def _moved(self, model: Model) -> set[int]:
        """Examples at one of whose positions another token wins, or nearly does."""
        assert model.tail is not None
        tail, seen = model.tail, self.seen
        if not len(seen.tokens):
            return set()
        shifted = tail.shift(seen.states, self.delta)
        look = (shifted != seen.states).any(-1) | (seen.gap == 0).to(shifted.device)
        touched = look.nonzero()[:, 0]
        if (
            tail.lipschitz is not None
        ):  # a small step in front of the head cannot bridge a large gap
            step = tail.hidden(shifted[touched]) - tail.hidden(seen.states[touched])
            bound = 2 * tail.lipschitz * step.norm(dim=-1) + tail.rounding
            touched = touched[bound.cpu() >= seen.gap[touched.cpu()]]
        moved: set[int] = set()
        whose = seen.owner[touched.cpu()].unique().tolist()
        for start in range(0, len(whose), 256):
            part = whose[start : start + 256]
            at = torch.cat([self.at[i] for i in part])
            texts = [self.examples[i].text for i in part]
            forced = model.task.force(texts, [self.targets[i] for i in part])
            logits = model.task.as_decoded(model.net, forced, tail(shifted[at]))
            two = logits.topk(2, dim=-1)
            sure = two.values[:, 0] - two.values[:, 1] > tail.rounding
            held = (two.indices[:, 0] == seen.tokens[at].to(logits.device)) & sure
            moved |= set(seen.owner[at[~held.cpu()]].tolist())
        return moved
