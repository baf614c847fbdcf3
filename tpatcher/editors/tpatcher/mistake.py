"""A mistake as T-Patcher sees it: the answer positions where another token wins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from tpatcher.editors.tpatcher.keys import Key
from tpatcher.errors import BadInput, NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.positions import Followed, Positions, follow, positions
from tpatcher.models.traces import Trace, trace
from tpatcher.nets import ffn, reading
from tpatcher.nets.reading import Reads
from tpatcher.nets.rows import Rows
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.neurons import Neurons


@dataclass(frozen=True)
class Mistake:
    """One example, its target, and what the model does at each of its answer positions."""

    model: Model
    example: Example
    layer: int
    target: list[int]
    positions: Positions
    logits: Tensor  # (P, labels or tokens), as greedy decoding sees them
    unsure: float = 0.0  # a target less probable than this counts as losing: it will, rephrased
    beside: Mapping[str, Trace] = field(default_factory=dict)  # what was run in the same batch
    draft: "Draft | None" = None

    @classmethod
    @torch.no_grad()
    def find(
        cls,
        model: Model,
        example: Example,
        layer: int = -1,
        reads: Reads = "position",
        known: Followed | None = None,
        beside: Sequence[str] = (),
    ) -> "Mistake":
        """Follow an example along its target. `NotFixed` if the generation config forbids it.

        Texts `beside` it are followed along the same target in the same batch, where that can be.
        """
        target = model.task.target(example.text, example.answer)
        others = dict[str, Trace]()
        if beside and known is None and layer == -1 and model.tail_is_exact:
            texts = [example.text, *beside]
            known, *rest = follow(model, texts, [target] * len(texts), reads)
            others = {text: seen for text, (seen, _) in zip(beside, rest, strict=True)}
        followed = positions(model, example.text, target, layer, reads, known)
        mistake = cls(model, example, layer, target, followed, followed.now(), beside=others)
        chosen = mistake.logits.gather(1, mistake.tokens[:, None])[:, 0]
        if chosen.isneginf().any():
            raise NotFixed(
                f"the model's generation config forbids the answer "
                f"{model.task.decode([target])[0]!r}: it bars or replaces token "
                f"{int(mistake.tokens[chosen.isneginf()][0])}"
            )
        return mistake

    @property
    def queries(self) -> Tensor:
        """(P, w): with the text's state beside each, if that is read."""
        return self.positions.trace.queries

    @property
    def tokens(self) -> Tensor:
        """(P,): the target's."""
        return self.positions.trace.tokens.to(self.logits.device)

    @cached_property
    def wrong(self) -> Tensor:
        """The positions where the target does not win, or only by rounding, or is unsure."""
        probable = self.logits.softmax(-1).gather(1, self.tokens[:, None])[:, 0]
        lost = _losing(self.logits, self.tokens, self.rounding)
        return (lost | (probable < self.unsure)).nonzero()[:, 0]

    @property
    def rounding(self) -> float:
        """A gap between logits below which nothing is decided."""
        return self.model.tail.rounding if self.model.tail else 1e-3

    @torch.no_grad()
    def right_with(self, rows: Rows, given_up: Sequence[int] = ()) -> bool:
        """Whether the target wins everywhere with these neurons, under teacher forcing.

        Positions that are given up are not asked about.
        """
        return self.right_by(self.positions.logits(rows), given_up)

    @torch.no_grad()
    def right_by(self, logits: Tensor, given_up: Sequence[int] = ()) -> bool:
        """Whether the target wins everywhere by these logits (P, labels or tokens)."""
        decoded = self.positions.as_decoded(logits)
        lost = _losing(decoded, self.tokens, self.rounding).cpu()
        lost[list(given_up)] = False
        return not lost.any()


def _losing(logits: Tensor, tokens: Tensor, rounding: float) -> Tensor:
    """Where (P,) the token does not have the largest logit by more than rounding."""
    chosen = logits.gather(1, tokens[:, None])
    others = logits.scatter(1, tokens[:, None], -torch.inf).max(-1).values
    return chosen[:, 0] - others <= rounding


@dataclass(frozen=True)
class Draft:
    """What was found of a mistake's neurons beside those of others, before its turn."""

    wrong: Tensor  # (n,): the positions that the neurons are for
    states: Tensor  # (n, …): what entered the tail there
    keys: Sequence[Key]
    values: Tensor | None = None  # (n, d)
    probability: Tensor = field(default_factory=lambda: torch.empty(0))  # (levels, n)


@dataclass(frozen=True)
class PastFixes:
    """The answer positions of the fixes that a model has in one layer, newest per text."""

    queries: Tensor  # (m, d)
    states: Tensor  # (m, d or 2d)
    tokens: Tensor  # (m,)
    ids: list[str]  # (m,): the patch that the position belongs to

    @classmethod
    def of(
        cls, model: Model, texts: Sequence[str], layer: int, reads: Reads = "position"
    ) -> "PastFixes":
        """All fixes but those of the very texts that are being fixed."""
        newest: dict[str, Neurons] = {}
        for patch in model.patches:
            if isinstance(patch, Neurons) and patch.layer == layer:
                newest[patch.example.text.strip() if patch.example else patch.id] = patch
        for text in texts:
            newest.pop(text.strip(), None)
        kept = list(newest.values())
        width = ffn.find(model.net, layer).width
        if reads == "text":
            width += reading.text_width(model.net)
        if not kept:
            none = torch.empty(0, width)
            return cls(none, none, torch.empty(0, dtype=torch.long), [])
        return cls(
            queries=torch.cat([_as_wide(model, p, width) for p in kept]),
            states=torch.cat([p.states for p in kept]),
            tokens=torch.cat([p.tokens for p in kept]),
            ids=[p.id for p in kept for _ in p.tokens],
        )


def _as_wide(model: Model, patch: Neurons, width: int) -> Tensor:
    """The patch's queries, read again from its text where they are too narrow."""
    if patch.queries.shape[1] >= width:
        return patch.queries[:, :width]
    if patch.example is None:
        raise BadInput(
            f"fix {patch.id} was made for its position alone and is here without its text, so "
            'nothing tells how to leave it alone: edit with reads="position"'
        )
    seen = trace(model, [patch.example.text], [patch.tokens.tolist()], patch.layer, "text")
    return seen.queries.cpu()


def make_patch(mistake: Mistake, rows: Rows, certificate: Certificate) -> Neurons:
    """The patch that these neurons are, with the older patches that fire on its queries."""
    seen, layer = mistake.positions.trace, mistake.layer
    older = [p for p in mistake.model.patches if isinstance(p, Neurons) and p.layer == layer]
    fired = mistake.positions.rows.response(seen.queries).cpu() > 0  # (P, neurons of older)
    parts = fired.split([len(p.bias) for p in older], dim=1) if older else ()
    return Neurons(
        example=mistake.example,
        editor="t-patcher",
        certificate=certificate,
        layer=layer,
        keys=rows.keys,
        bias=rows.bias,
        values=rows.values,
        queries=seen.queries,
        states=seen.states,
        tokens=seen.tokens,
        depends_on=tuple(sorted(p.id for p, own in zip(older, parts, strict=True) if own.any())),
    )
