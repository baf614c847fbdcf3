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

VERSION = 6  # of what contrast is: 5 ran it where answers begin, and left out what was unsure


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
        by = _by_text_alone if here.reads == "text" else _where_answers_begin
        seen = [by(mistake, texts)]
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
    """The mistake's own queries once for each text, with that text's state in the place of its own.

    A key has to tell such rows from the mistake by the text alone, which is harder than it will
    be, and only the layers are run that the text is read by. They are of the positions that get
    a neuron. What is said there by itself is not known: it counts as another token.
    """
    model, here, wrong = mistake.model, mistake.positions, mistake.wrong.cpu()
    # where prompts end with a token of their own, the state there is that of all of the answer
    begins = not isinstance(model.task, Causal) or model.task.turn is not None
    read = 1 if begins else len(mistake.target)
    forced = model.task.force(texts, [mistake.target[:read]] * len(texts))
    states = model.probe(here.layer, "text").text_states(forced).view(len(texts), read, -1)
    states = states.expand(-1, len(mistake.target), -1) if begins else states
    seen = here.trace.at(wrong.repeat(len(texts)))
    own = seen.queries[:, : here.ffn.width]
    beside = states[:, wrong].flatten(0, 1).to(own)
    owner = torch.arange(len(texts)).repeat_interleave(len(wrong))
    unknown = torch.full_like(seen.best, -1)
    return replace(seen, queries=torch.cat([own, beside], 1), owner=owner, best=unknown)


def _where_answers_begin(mistake: Mistake, texts: list[str]) -> Trace:
    """The texts along the mistake's target, up to the first token that they would not say."""
    model, target, here = mistake.model, mistake.target, mistake.positions
    begin = 2 if target[0] == model.tokenizer.bos_token_id else 1  # all of BART's begin with <s>
    seen = trace(model, texts, [target[:begin]] * len(texts), here.layer, here.reads)
    follows = (seen.best == seen.tokens).view(len(texts), -1)[:, : begin - 1].all(1)
    reached = torch.ones(len(texts), begin, dtype=torch.bool)
    reached[:, 1:] = follows[:, None]
    return seen.at(reached.flatten())


def _along_own_answers(mistake: Mistake, texts: list[str], some: list[int]) -> Trace:
    """Some of the texts along what the model answers to them."""
    model, here, asked = mistake.model, mistake.positions, [texts[i] for i in some]
    seen = trace(model, asked, targets_to_follow(model, asked), here.layer, here.reads)
    return replace(seen, owner=torch.tensor(some)[seen.owner])
