"""Answer paths: what happens at each answer position, seen once and reckoned with ever after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from rich.progress import track
from torch import Tensor

from tpatcher.example import Example
from tpatcher.models.model import Model, is_last
from tpatcher.nets import ffn
from tpatcher.nets.tail import Probe
from tpatcher.nets.tasks import TeacherForced


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


def look(model: Model, forced: TeacherForced, layer: int) -> tuple[Trace, Tensor]:
    """One pass through forced answers, and the logits there as greedy decoding sees them.

    Both are without the last layer's patches, if that is the layer.
    """
    probe = model.probe(layer)
    output, seen = probe.run(forced)
    logits = model.task.as_decoded(model.net, forced, model.task.logits(output, forced).float())
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
        said = iter(model.task.dummy_targets(len(plain)))
    else:
        with torch.inference_mode():
            said = iter(model.task.predict(model.net, plain))
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
        bare.set_patches(p for p in model.patches if not is_last(p))
    probe = Probe(bare.net, names)
    probe.net.train()
    forced = model.task.force([text] * n, [target] * n)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _, seen = probe.run(forced)
    queries = seen[names[0]]
    states = model.tail.state(seen) if model.tail else queries.new_empty(len(queries), 0)
    return queries.view(n, -1, queries.shape[-1]), states.view(n, len(queries) // n, -1)
