"""Traces of the model at each answer position, cached so that later checks need not run it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from rich.progress import track
from torch import Tensor

from tpatcher.batches import batches
from tpatcher.example import Example, text_of
from tpatcher.models.model import Model
from tpatcher.nets.generation import Seq2Seq
from tpatcher.nets.reading import Reads
from tpatcher.nets.tasks import TeacherForced


@dataclass
class Trace:
    """What one pass through given answers shows at each of their P positions."""

    queries: Tensor  # (P, w): w is d, or more with the text's state beside each
    states: Tensor  # (P, d or 2d): what enters the tail, without the last layer's patches
    tokens: Tensor  # (P,): the given label or token
    owner: Tensor  # (P,): the index of the text that the position belongs to
    best: Tensor  # (P,): the label or token that wins there
    gap: Tensor  # (P,): by how much, in logits

    @classmethod
    def join(cls, parts: Sequence["Trace"]) -> "Trace":
        """Several traces as one, in order."""
        names = [f.name for f in fields(cls)]
        return cls(*(torch.cat([getattr(p, name) for p in parts]) for name in names))

    def at(self, rows: Tensor) -> "Trace":
        """Some rows of the trace."""
        return Trace(**{name: held[rows.to(held.device)] for name, held in vars(self).items()})


@torch.no_grad()
def trace(
    model: Model,
    texts: Sequence[str],
    targets: Sequence[Sequence[int]],
    layer: int = -1,
    reads: Reads = "position",
) -> Trace:
    """The trace of one batch of texts along given answers (teacher forcing)."""
    return trace_forced(model, model.task.force(texts, targets), layer, reads)[0]


def trace_forced(
    model: Model, forced: TeacherForced, layer: int = -1, reads: Reads = "position"
) -> tuple[Trace, Tensor]:
    """The trace of one forced batch, and its logits as greedy decoding sees them.

    For the last layer, both are without that layer's patches.
    """
    probe, tail = model.probe(layer, reads), model.tail
    if tail and model.task.generates:  # the head at the answer positions alone
        seen = probe.seen(forced)
        logits = tail(tail.state(seen))
    else:
        output, seen = probe.run(forced)
        logits = model.task.logits(output, forced).float()
    logits = model.task.as_decoded(model.net, forced, logits)
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


@torch.no_grad()
def queries(
    model: Model,
    texts: Sequence[str],
    targets: Sequence[Sequence[int]],
    layer: int = -1,
    reads: Reads = "position",
) -> Tensor:
    """The queries (P, w) of one batch of texts along given answers, and nothing else of them."""
    probe, forced = model.probe(layer, reads), model.task.force(texts, targets)
    seen = probe.seen(forced) if model.task.generates else probe.run(forced)[1]
    return seen[probe.names[0]]


def traces(
    model: Model,
    items: Sequence[str | Example],
    layer: int = -1,
    batch: int = 32,
    reads: Reads = "position",
) -> Iterator[tuple[Sequence[int], list[list[int]], Trace]]:
    """Traces of many items, batch by batch: their indices, their targets, the trace.

    An example is followed along its right answer (teacher forcing), a plain text along
    whatever the model itself answers.
    """
    texts = [text_of(item) for item in items]
    plain = torch.tensor([isinstance(i, str) for i in items])
    # like lengths together, within windows: any stretch of the result is still a fair sample
    window = 32 * batch
    order = sorted(range(len(items)), key=lambda i: (i // window, len(texts[i])))
    at_once = layer == -1 and model.tail and not len(model.rows()) and bool(plain.all())
    for part in batches(order, batch):
        if at_once and isinstance(model.task, Seq2Seq):
            yield (part, *_trace_while_answering(model, [texts[i] for i in part], reads))
            continue
        targets = targets_to_follow(model, [items[i] for i in part])
        seen = trace(model, [texts[i] for i in part], targets, layer, reads)
        if not model.task.generates:  # one answer position, whose winner is the answer
            seen.tokens = torch.where(plain[part][seen.owner], seen.best, seen.tokens)
            first = seen.owner.diff(prepend=torch.tensor([-1])) > 0
            targets = [[token] for token in seen.tokens[first].tolist()]
        yield part, targets, seen


def _trace_while_answering(
    model: Model, texts: Sequence[str], reads: Reads
) -> tuple[list[list[int]], Trace]:
    """The answers of an encoder-decoder without patches in its last layer, and their trace.

    What `trace` sees along an answer was there when it was generated: one run is enough.
    """
    assert isinstance(model.task, Seq2Seq) and model.tail is not None
    probe = model.probe(-1, reads)
    targets, chosen = probe.answer(model.task, texts)
    return targets, Trace(
        queries=chosen.seen[probe.names[0]],
        states=model.tail.state(chosen.seen),
        tokens=torch.tensor([token for target in targets for token in target]),
        owner=torch.tensor([i for i, target in enumerate(targets) for _ in target]),
        best=chosen.best,
        gap=chosen.gap,
    )


def trace_own_answers(
    model: Model, examples: Sequence[Example], batch: int, progress: bool = False
) -> Trace:
    """The trace along the model's own answers, example after example, for keys of every kind."""
    parts = []
    found = traces(model, [e.text for e in examples], batch=batch, reads="text")
    total = -(-len(examples) // batch)
    label = "answering before any edit"
    for part, _, seen in track(found, label, total, transient=True, disable=not progress):
        seen.owner = torch.tensor(part)[seen.owner]
        parts.append(seen)
    seen = Trace.join(parts)
    order = seen.owner.argsort(stable=True)
    return seen.at(order)


def targets_to_follow(model: Model, items: Sequence[str | Example]) -> list[list[int]]:
    """The target to follow for each item; a label needs no run, its trace will show it."""
    plain = [i for i in items if isinstance(i, str)]
    if not model.task.generates or not plain:
        own = iter(model.task.dummy_targets(len(plain)))
    else:
        with torch.inference_mode():
            own = iter(model.task.predict(model.net, plain))
    return [next(own) if isinstance(i, str) else model.task.target(i.text, i.answer) for i in items]
