"""Contrast texts as the model sees them: what a new key must leave alone beside the memory."""

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.models.traces import Trace, targets_to_follow, trace

FOLLOWED = 8  # sisters that are followed along the model's own answer


@dataclass(frozen=True)
class Contrast:
    """The contrast texts of one mistake, each followed along the mistake's own target."""

    texts: list[str]
    kinds: list[str]  # of each text
    trace: Trace

    @classmethod
    def of(cls, mistake: Mistake, phrases: Phrases, limit: int) -> "Contrast":
        """The contrast texts of a mistake, traced in one batch."""
        by_kind = phrases.contrast(mistake.example) if limit else {}
        # a question that is negated asks nothing; of claims, sisters cost GR and kept no more
        idle = ["negations"] if mistake.model.task.generates else ["sisters", "neighbours"]
        for kind in idle:
            by_kind.pop(kind, None)
        found = [(text, kind) for kind, texts in by_kind.items() for text in texts][:limit]
        texts, kinds = [text for text, _ in found], [kind for _, kind in found]
        here = mistake.positions
        if not texts:
            rows = torch.zeros(0, dtype=torch.long)
            empty = {name: getattr(here.trace, name)[:0] for name in ("queries", "states", "gap")}
            return cls([], [], Trace(**empty, tokens=rows, owner=rows, best=rows))
        if not mistake.model.task.generates:
            targets = [mistake.target] * len(texts)
            seen = trace(mistake.model, texts, targets, here.layer, here.reads)
        else:
            seen = _along_target(mistake, texts)
            # what a user names is followed along its own answer too, which takes a run, and so are
            # a few others: a neuron for a later token must not fire in the middle of their answers
            some = [i for i, kind in enumerate(kinds) if kind == "given"]
            some += [i for i, kind in enumerate(kinds) if kind == "sisters"][:FOLLOWED]
            if some:
                asked = [texts[i] for i in some]
                own = targets_to_follow(mistake.model, asked)
                along = trace(mistake.model, asked, own, here.layer, here.reads)
                along.owner = torch.tensor(some)[along.owner]
                seen = Trace.join([seen, along])
        return cls(texts, kinds, seen)

    def without(self, rows: Tensor) -> "Contrast":
        """Without the texts that these rows of the trace belong to."""
        gone = set(self.trace.owner[rows].tolist())
        keep = torch.tensor([int(o) not in gone for o in self.trace.owner], dtype=torch.bool)
        return replace(self, trace=self.trace.at(keep))

    def counts(self) -> dict[str, int]:
        """How many texts of each kind are held."""
        return dict(Counter(self.kinds[i] for i in set(self.trace.owner.tolist())))


def _along_target(mistake: Mistake, texts: list[str]) -> Trace:
    """The texts along the mistake's target, each as far as the model would go by itself.

    Hardly any text begins as the target does, so only the beginning is looked at first.
    """
    model, target, here = mistake.model, mistake.target, mistake.positions
    begin = 2 if target[0] == model.tokenizer.bos_token_id else 1  # all of BART's begin with <s>
    seen = trace(model, texts, [target[:begin]] * len(texts), here.layer, here.reads)
    reached, follows = _reached(seen, len(texts))
    further = follows.nonzero()[:, 0].tolist()
    seen = seen.at(reached)
    if not further or len(target) <= begin:
        return seen
    asked = [texts[i] for i in further]
    more = trace(model, asked, [target] * len(asked), here.layer, here.reads)
    reached, _ = _reached(more, len(asked))
    reached.view(len(asked), -1)[:, :begin] = False  # known already
    more.owner = torch.tensor(further)[more.owner]
    return Trace.join([seen, more.at(reached)])


def _reached(seen: Trace, n: int) -> tuple[Tensor, Tensor]:
    """Which positions (P,) the model reaches by itself, and which of n texts it follows whole."""
    follows = (seen.best == seen.tokens).view(n, -1).long().cumprod(1)
    before = follows.roll(1, 1)
    before[:, 0] = 1
    return before.flatten().bool(), follows[:, -1].bool()
