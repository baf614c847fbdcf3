"""What a language model does at every position of ordinary text: one pass, nothing generated.

The head is the dear part of a small model and its logits the large one, so they are worked out
block by block, at the positions that are kept alone, and only winner and gap stay.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tpatcher.batches import batches
from tpatcher.models.model import Model
from tpatcher.models.traces import Trace
from tpatcher.nets.causal import Causal, finished
from tpatcher.nets.reading import Reads
from tpatcher.nets.tasks import TeacherForced

PIECE = 256  # tokens of a long text that are read together
TOGETHER = 2048  # tokens of one pass
LOGITS = 1 << 24  # logits that are held at once


@dataclass(frozen=True)
class Reading:
    """The ids of one text to be read, and where in it an answer begins, if one does."""

    ids: list[int]
    owner: int  # the index of the text among those given
    kind: str
    begin: int = 1 << 30


@dataclass
class Read:
    """What one pass has shown, at those of its positions that were not seen before."""

    trace: Trace  # whose owners are those of the readings
    kinds: list[str]  # of each position


def readings(
    model: Model,
    texts: Sequence[str],
    kind: str = "documents",
    batch: int = 32,
    followed: int | None = None,
) -> Iterator[Reading]:
    """Texts as they are read: a question along the model's own answer, a document in pieces.

    Of questions beyond the first `followed` the prompt alone is read, which ends where the answer
    begins: nothing is generated.
    """
    task = model.task
    assert isinstance(task, Causal)
    asked = []
    for i, text in enumerate(texts):
        if finished(text):
            yield from (Reading(piece, i, kind) for piece in task.pieces(text, PIECE))
        else:
            asked.append(i)
    for i in asked[followed:] if followed is not None else ():
        ids = task.ids(texts[i])
        yield Reading(ids, i, "prompts", begin=len(ids))
    asked = asked[:followed]
    window = 32 * batch  # like lengths together, within windows
    order = sorted(range(len(asked)), key=lambda k: (k // window, len(texts[asked[k]])))
    for part in batches([asked[k] for k in order], batch):
        with torch.inference_mode():
            said = task.predict(model.net, [texts[i] for i in part])
        for i, target in zip(part, said, strict=True):
            ids = task.ids(texts[i])
            yield Reading(ids + target[:-1], i, "prompts", begin=len(ids))


@torch.no_grad()
def read(
    model: Model, given: Iterable[Reading], layer: int = -1, reads: Reads = "position"
) -> Iterator[Read]:
    """Every position of the readings, pass by pass; one whose whole text was seen comes once."""
    seen: set[int] = set()
    for batch in _batches(given):
        task = model.task
        assert isinstance(task, Causal)
        forced = task.read([one.ids for one in batch], [one.begin for one in batch])
        new = _unseen(batch, seen)
        if not len(new):
            continue
        forced = forced.at(new)
        trace = _trace(model, forced, layer, reads)
        kinds = [
            "answers" if step >= 0 else batch[row].kind
            for row, step in zip(forced.row.tolist(), forced.step.tolist(), strict=True)
        ]
        trace.owner = torch.tensor([one.owner for one in batch])[forced.row]
        yield Read(trace, kinds)


def _batches(given: Iterable[Reading]) -> Iterator[list[Reading]]:
    """Readings of like length together, as many as one pass takes."""
    window: list[Reading] = []
    for one in given:
        window.append(one)
        if len(window) == 256:
            yield from _cut(window)
            window = []
    yield from _cut(window)


def _cut(window: list[Reading]) -> Iterator[list[Reading]]:
    window.sort(key=lambda one: len(one.ids))
    batch: list[Reading] = []
    for one in window:
        if batch and (len(batch) + 1) * len(one.ids) > TOGETHER:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _unseen(batch: Sequence[Reading], seen: set[int]) -> Tensor:
    """The positions whose text up to there is new; those texts join `seen`."""
    keep, position = [], 0
    for one in batch:
        before = 0
        for token in one.ids:
            before = hash((before, token))
            if before not in seen:
                seen.add(before)
                keep.append(position)
            position += 1
    return torch.tensor(keep, dtype=torch.long)


def _trace(model: Model, forced: TeacherForced, layer: int, reads: Reads) -> Trace:
    """The trace at a batch's positions, with the logits of a block of them at a time."""
    probe, tail = model.probe(layer, reads), model.tail
    output, seen = (None, probe.seen(forced)) if tail else probe.run(forced)
    queries = seen[probe.names[0]]
    states = tail.state(seen) if tail else queries.new_empty(len(queries), 0)
    best, gap = [], []
    rows = max(16, LOGITS // int(model.net.config.get_text_config().vocab_size))
    for part in torch.arange(len(queries)).split(rows):
        here = forced.at(part)
        logits = tail(states[part]) if tail else model.task.logits(output, here).float()
        two = model.task.as_decoded(model.net, here, logits).topk(2, dim=-1)
        best.append(two.indices[:, 0].cpu())
        gap.append((two.values[:, 0] - two.values[:, 1]).cpu())
    return Trace(queries, states, forced.tokens, forced.row, torch.cat(best), torch.cat(gap))
