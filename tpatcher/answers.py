"""Answer paths: what happens at each answer position, seen once and reckoned with ever after."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields

import torch
from rich.progress import track
from torch import Tensor

from tpatcher import ffn
from tpatcher.example import Example
from tpatcher.models import Model, is_last
from tpatcher.patch import Neurons, Patch, rows
from tpatcher.tail import Probe
from tpatcher.tasks import Forced


@dataclass
class Trace:
    """What one pass through given answers shows at each of their positions."""

    queries: Tensor  # (P, d)
    states: Tensor  # (P, d or 2d): what enters the tail, without the last layer's patches
    tokens: Tensor  # (P,): the given label or token
    owner: Tensor  # (P,): whose position it is
    best: Tensor  # (P,): the label or token that wins there
    gap: Tensor  # (P,): by how much, in logits

    @classmethod
    def join(cls, parts: Sequence["Trace"]) -> "Trace":
        """Several traces as one, in order."""
        names = [f.name for f in fields(cls)]
        return cls(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


@torch.no_grad()
def trace(
    model: Model, texts: Sequence[str], targets: Sequence[Sequence[int]], layer: int = -1
) -> Trace:
    """One teacher-forced pass over one batch."""
    return look(model, model.task.force(texts, targets), layer)[0]


def look(model: Model, forced: Forced, layer: int) -> tuple[Trace, Tensor]:
    """One pass through forced answers, and the logits there as greedy decoding sees them.

    Both are without the last layer's patches, if that is the layer.
    """
    probe = model.probe(layer)
    output, seen = probe.run(forced)
    logits = model.task.process(model.net, forced, model.task.logits(output, forced).float())
    two = logits.topk(2, dim=-1)
    queries = seen[probe.names[0]]
    found = Trace(
        queries=queries,
        states=model.tail.state(seen) if model.tail else queries.new_empty(len(queries), 0),
        tokens=forced.tokens,
        owner=forced.row,
        best=two.indices[:, 0].cpu(),
        gap=(two.values[:, 0] - two.values[:, 1]).cpu(),
    )
    return found, logits


def traces(
    model: Model, items: Sequence[str | Example], layer: int = -1, batch: int = 32
) -> Iterator[tuple[list[int], list[list[int]], Trace]]:
    """Traces of many items, batch by batch: their indices, their targets, the trace.

    An example is followed along its right answer (teacher forcing), a plain text along
    whatever the model itself answers.
    """
    text = [i.text if isinstance(i, Example) else i for i in items]
    plain = torch.tensor([isinstance(i, str) for i in items])
    # like lengths together, within windows: any stretch of the result is still a fair sample
    window = 32 * batch
    order = sorted(range(len(items)), key=lambda i: (i // window, len(text[i])))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        own = followed(model, [items[i] for i in part])
        seen = trace(model, [text[i] for i in part], own, layer)
        if model.task.name == "classify":  # one position, whose winner is the answer
            seen.tokens = torch.where(plain[part][seen.owner], seen.best, seen.tokens)
            own = [
                [t] for t in seen.tokens[seen.owner.diff(prepend=torch.tensor([-1])) > 0].tolist()
            ]
        yield part, own, seen


def own(model: Model, examples: Sequence[Example], batch: int, progress: bool = False) -> Trace:
    """The paths of the model's own answers, example after example."""
    parts = []
    for part, _, seen in track(
        traces(model, [e.text for e in examples], batch=batch), "answering before any edit",
        total=-(-len(examples) // batch), transient=True, disable=not progress,
    ):  # fmt: skip
        seen.owner = torch.tensor(part)[seen.owner]
        parts.append(seen)
    seen = Trace.join(parts)
    order = seen.owner.argsort(stable=True)
    return Trace(**{k: v[order.to(v.device)] for k, v in vars(seen).items()})


def followed(model: Model, items: Sequence[str | Example]) -> list[list[int]]:
    """The target to follow for each item; a label needs no run, the trace itself shows it."""
    plain = [i for i in items if isinstance(i, str)]
    if model.task.name == "classify" or not plain:
        said = iter(model.task.some_targets(len(plain)))
    else:
        with torch.inference_mode():
            said = iter(model.task.said(model.net, plain))
    return [
        next(said) if isinstance(i, str) else model.task.target(i.text, i.answer) for i in items
    ]


@torch.no_grad()
def views(
    model: Model, text: str, target: Sequence[int], n: int, seed: int, layer: int = -1
) -> tuple[Tensor, Tensor]:
    """Queries (n, P, d) and states (n, P, s) of one example under n draws of dropout."""
    names = [ffn.find(model.net, layer).first, *(model.tail.names if model.tail else [])]
    bare = model.twin()
    if layer == -1:
        bare.wear(p for p in model.patches if not is_last(p))
    probe = Probe(bare.net, names)
    probe.net.train()
    forced = model.task.force([text] * n, [target] * n)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _, seen = probe.run(forced)
    queries = seen[names[0]]
    states = model.tail.state(seen) if model.tail else queries.new_empty(len(queries), 0)
    return queries.view(n, -1, queries.shape[-1]), states.view(n, len(queries) // n, -1)


class Positions:
    """The answer positions of one example, and the logits there under any further neurons."""

    def __init__(self, model: Model, text: str, target: Sequence[int], layer: int = -1) -> None:
        self.model, self.layer = model, layer
        self.forced: Forced = model.task.force([text], [target])
        self.place = ffn.find(model.net, layer)
        self.seen, self.bare = look(model, self.forced, layer)
        self.worn = tuple(t.to(model.net.device) for t in rows(model.patches, layer))
        self.fast = layer == -1 and model.cached
        if not self.fast:
            self.net = ffn.twin(model.net)
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
        other.net = ffn.twin(self.model.net).train()
        return other

    def process(self, logits: Tensor) -> Tensor:
        """Logits as greedy decoding sees them."""
        return self.model.task.process(self.model.net, self.forced, logits)


class Paths:
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
        self.bare.wear(p for p in model.patches if not is_last(p))
        self.usable = self.bare.cached
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
        answers = self.bare.task.worded(self.targets)
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
        if not (self.usable and model.cached):
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
        if tail.reach is not None:  # a small step in front of the head cannot bridge a large gap
            step = tail.hidden(shifted[touched]) - tail.hidden(seen.states[touched])
            bound = 2 * tail.reach * step.norm(dim=-1) + tail.rounding
            touched = touched[bound.cpu() >= seen.gap[touched.cpu()]]
        moved: set[int] = set()
        whose = seen.owner[touched.cpu()].unique().tolist()
        for start in range(0, len(whose), 256):
            part = whose[start : start + 256]
            at = torch.cat([self.at[i] for i in part])
            texts = [self.examples[i].text for i in part]
            forced = model.task.force(texts, [self.targets[i] for i in part])
            logits = model.task.process(model.net, forced, tail(shifted[at]))
            two = logits.topk(2, dim=-1)
            sure = two.values[:, 0] - two.values[:, 1] > tail.rounding
            held = (two.indices[:, 0] == seen.tokens[at].to(logits.device)) & sure
            moved |= set(seen.owner[at[~held.cpu()]].tolist())
        return moved
