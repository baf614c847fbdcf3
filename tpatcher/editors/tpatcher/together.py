"""Neurons of many mistakes at once: the passes over the memory and the steps serve them all."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from tpatcher.editors.tpatcher import keys, values
from tpatcher.editors.tpatcher.contexts import contexts
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Draft, Mistake, PastFixes
from tpatcher.models.positions import CachedPositions
from tpatcher.models.traces import queries


def views(mistake: Mistake, in_contexts: bool) -> list[Tensor]:
    """For each wrong position, the queries (p, d) that its neuron must fire on."""
    found = [mistake.queries.cpu()]
    batches = [list(mistake.example.rephrasings)]
    if in_contexts:
        batches.append(contexts(mistake.model, mistake.example.text))
    for texts in filter(None, batches):
        if all(text in mistake.beside for text in texts):
            found += [mistake.beside[text].queries.cpu() for text in texts]
            continue
        targets, reads = [mistake.target] * len(texts), mistake.positions.reads
        seen = queries(mistake.model, texts, targets, mistake.layer, reads).cpu()
        found += list(seen.view(len(texts), -1, seen.shape[-1]))
    return [torch.stack([view[i] for view in found]) for i in mistake.wrong.cpu()]


def keys_together(
    mistakes: Sequence[Mistake], memory: Memory, past: PastFixes, duals: int, width: int
) -> list[Draft]:
    """A draft for each of some mistakes; its keys stay clear of the other mistakes too."""
    negatives = keys.Negatives(
        memory=memory,
        target=torch.cat([m.tokens[m.wrong].cpu() for m in mistakes]),
        is_mistake=memory.rows_of([m.example.text for m in mistakes]),
        extra=torch.cat([past.queries, *(m.queries.cpu() for m in mistakes)]),
        extra_answers=torch.cat([past.tokens, *(m.tokens.cpu() for m in mistakes)]),
    )
    every = [view for m in mistakes for view in views(m, in_contexts=False)]
    found = iter(keys.solve(every, negatives, duals, width, passes=duals + 1))
    return [Draft(m.wrong, _states(m), list(islice(found, len(m.wrong)))) for m in mistakes]


def values_together(
    mistakes: Sequence[Mistake],
    drafts: Sequence[Draft],
    problem: Callable[..., values.ValueProblem],
    confidence: float,
) -> list[Draft]:
    """The drafts of some labels with their values, but where the target never wins."""
    here = mistakes[0].positions
    assert isinstance(here, CachedPositions)
    logits = torch.cat([m.logits[m.wrong] for m in mistakes])
    tokens = torch.cat([m.tokens[m.wrong] for m in mistakes])
    every = problem(here.tail, torch.cat([d.states for d in drafts]), logits.isneginf(), tokens)
    found = values.solve(every, logits, confidence, contenders=logits.shape[1])
    sizes = [len(m.wrong) for m in mistakes]
    own = zip(
        drafts,
        found.values.split(sizes),
        found.probability.split(sizes, dim=1),
        found.wins.any(0).split(sizes),
        strict=True,
    )
    return [
        replace(draft, values=value, probability=likely) if wins.all() else draft
        for draft, value, likely, wins in own
    ]


def _states(mistake: Mistake) -> Tensor:
    assert isinstance(mistake.positions, CachedPositions)
    return mistake.positions.states[mistake.wrong]
