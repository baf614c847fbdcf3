"""Contrast texts as the model sees them: what a new key must leave alone beside the memory."""

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.example import Conversation, Example
from tpatcher.models.model import Model
from tpatcher.models.traces import Trace, targets_to_follow, trace
from tpatcher.nets.causal import Causal

VERSION = 5  # of what contrast is: 4 replaced numbers by letters


@dataclass(frozen=True)
class Contrast:
    """The contrast texts of one mistake, each as its key will meet it."""

    texts: list[str]
    kinds: list[str]  # of each text
    trace: Trace

    @classmethod
    def of(cls, mistake: Mistake, phrases: Phrases, limit: int, namesakes: int = 0) -> "Contrast":
        """The contrast texts of a mistake, traced in one batch.

        Of a language model whose keys read the text, they are those given and so many namesakes.
        """
        model, here = mistake.model, mistake.positions
        early = isinstance(model.task, Causal) and here.reads == "text"
        held = namesakes if early else None
        texts, kinds = contrast_texts(model, mistake.example, phrases, limit, held)
        if not texts:
            rows = torch.zeros(0, dtype=torch.long)
            empty = {name: getattr(here.trace, name)[:0] for name in ("queries", "states", "gap")}
            return cls([], [], Trace(**empty, tokens=rows, owner=rows, best=rows))
        if not model.task.generates:
            return cls(texts, kinds, _along_the_same_target(mistake, texts))
        seen = [_by_text_alone(mistake, texts)] if early else _from_the_beginning(mistake, texts)
        # what a user names is followed along the model's own answer, which takes a run
        if some := [i for i, kind in enumerate(kinds) if kind == "given"]:
            seen.append(_along_own_answers(mistake, texts, some))
        return cls(texts, kinds, Trace.join(seen))

    def without(self, rows: Tensor) -> "Contrast":
        """Without the texts that these rows of the trace belong to."""
        gone = set(self.trace.owner[rows].tolist())
        keep = torch.tensor([int(o) not in gone for o in self.trace.owner], dtype=torch.bool)
        return replace(self, trace=self.trace.at(keep))

    def counts(self) -> dict[str, int]:
        """How many texts of each kind are held."""
        return dict(Counter(self.kinds[i] for i in set(self.trace.owner.tolist())))


def contrast_texts(
    model: Model, example: Example, phrases: Phrases, limit: int, namesakes: int | None = None
) -> tuple[list[str], list[str]]:
    """The contrast texts of an example, and the kind of each.

    With a number of namesakes, they are those and what is given alone.
    """
    by_kind = phrases.contrast(example) if limit else {}
    if namesakes is not None:
        given = by_kind.get("given", [])[:limit]
        by_kind = {"given": given, "namesakes": _namesakes(phrases, example.text, namesakes)}
        limit += namesakes
    # a question that is negated asks nothing; of claims, sisters cost GR and kept no more
    idle = {"negations"} if model.task.generates else {"sisters", "neighbours"}
    found = [(one, kind) for kind, made in by_kind.items() if kind not in idle for one in made]
    return [text for text, _ in found[:limit]], [kind for _, kind in found[:limit]]


def _asked(text: str) -> str:
    """A text, or the last message of a conversation."""
    last = text.messages[-1].get("content") if isinstance(text, Conversation) else text
    return last if isinstance(last, str) else ""


def _namesakes(phrases: Phrases, text: str, count: int) -> list[str]:
    """Namesakes of a text; of a conversation, those of its last message in the place of that."""
    made = phrases.namesakes(_asked(text), count)
    if not isinstance(text, Conversation):
        return made
    *before, last = text.messages
    return [Conversation([*before, {**last, "content": one}]) for one in made]


def _along_the_same_target(mistake: Mistake, texts: list[str]) -> Trace:
    """The texts along the mistake's target; what was run with the mistake is not run again."""
    known = [mistake.beside[text] for text in texts if text in mistake.beside]
    if len(known) < len(texts):
        here, targets = mistake.positions, [mistake.target] * len(texts)
        return trace(mistake.model, texts, targets, here.layer, here.reads)
    sizes = torch.tensor([len(seen.tokens) for seen in known])
    return replace(Trace.join(known), owner=torch.arange(len(known)).repeat_interleave(sizes))


def _by_text_alone(mistake: Mistake, texts: list[str]) -> Trace:
    """The mistake's own trace once for each text, with that text's state in the place of its own.

    A key has to tell such rows from the mistake by the text alone, which is harder than it will
    be, and only the layers are run that the text is read by.
    """
    model, here, length = mistake.model, mistake.positions, len(mistake.target)
    assert isinstance(model.task, Causal)
    # where prompts end with a token of their own, the state there is that of all of the answer
    read = 1 if model.task.turn is not None else length
    forced = model.task.force(texts, [mistake.target[:read]] * len(texts))
    states = model.probe(here.layer, "text").text_states(forced)
    states = states.repeat_interleave(length // read, 0)
    positions = torch.arange(length).repeat(len(texts))
    owner = torch.arange(len(texts)).repeat_interleave(length)
    return _read_elsewhere(mistake, positions, states, owner)


def _read_elsewhere(mistake: Mistake, positions: Tensor, states: Tensor, owner: Tensor) -> Trace:
    """Positions (k,) of the mistake's own trace as if they stood in texts with these states."""
    seen = mistake.positions.trace.at(positions)
    own = seen.queries[:, : mistake.positions.ffn.width]
    return replace(seen, queries=torch.cat([own, states.to(own)], 1), owner=owner)


def _along_own_answers(mistake: Mistake, texts: list[str], some: list[int]) -> Trace:
    """Some of the texts along what the model answers to them."""
    model, here, asked = mistake.model, mistake.positions, [texts[i] for i in some]
    seen = trace(model, asked, targets_to_follow(model, asked), here.layer, here.reads)
    return replace(seen, owner=torch.tensor(some)[seen.owner])


def _from_the_beginning(mistake: Mistake, texts: list[str]) -> list[Trace]:
    """The texts where their answers begin, and the rest of the mistake's own answer in them.

    A neuron for a later token must not fire in the middle of another answer. What those are would
    take a run to know; held against its own query in the other text, it fires nowhere there.
    """
    model, target, here = mistake.model, mistake.target, mistake.positions
    begin = 2 if target[0] == model.tokenizer.bos_token_id else 1  # all of BART's begin with <s>
    seen = trace(model, texts, [target[:begin]] * len(texts), here.layer, here.reads)
    follows = (seen.best == seen.tokens).view(len(texts), -1)[:, : begin - 1].all(1)
    reached = torch.ones(len(texts), begin, dtype=torch.bool)
    reached[:, 1:] = follows[:, None]
    first = seen.at(reached.flatten())
    later = torch.arange(begin, len(target))
    if not len(later) or here.reads == "position":
        return [first]
    states = seen.queries[::begin, here.ffn.width :].repeat_interleave(len(later), 0)
    owner = torch.arange(len(texts)).repeat_interleave(len(later))
    rest = _read_elsewhere(mistake, later.repeat(len(texts)), states, owner)
    # what is said there by itself is not known: it counts as another token, and as sure of it
    unknown = torch.full_like(rest.best, -1), torch.full_like(rest.gap, torch.inf)
    return [first, replace(rest, best=unknown[0], gap=unknown[1])]
