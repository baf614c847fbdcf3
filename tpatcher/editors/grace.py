"""GRACE (Hartvigsen et al., Aging with GRACE: Lifelong Model Editing with Discrete Key-Value
Adaptors, NeurIPS 2023): a codebook of keys with deferral radii in one layer.

An entry's key is the input of the layer's second matrix at an answer position; within its radius
the output is replaced by a trained value. GRACE looks at one token of a prompt; here every answer
position that is wrong gets an entry, so that generated answers of several tokens can be fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from tpatcher.editors.base import Editor
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, descend, force, logits
from tpatcher.nets import ffn
from tpatcher.nets.tail import Probe
from tpatcher.nets.twin import twin
from tpatcher.patches.codebook import Codebook, distances, newest, write


@dataclass
class Book:
    """Entries of a codebook, while they are being written."""

    keys: Tensor  # (n, h)
    radii: Tensor  # (n,)
    values: Tensor  # (n, d)
    tokens: Tensor  # (n,)

    def insert(self, key: Tensor, value: Tensor, token: int, radius: float) -> int:
        """Give a query an entry, as the paper's Algorithm 1 does; returns which one.

        Far from all others: a new one. Near one for the same answer: that one grows to reach it.
        Near one for another answer: a new one, and both shrink to half the distance.
        """
        at = int(distances(key[None], self.keys)[0].argmin()) if len(self.keys) else -1
        gap = float(distances(key[None], self.keys)[0, at]) if at >= 0 else float("inf")
        radii = self.radii.clone()
        if at >= 0 and gap <= radius + float(radii[at]):
            if int(self.tokens[at]) == token:
                radii[at] = max(float(radii[at]), gap)
                self.radii = radii
                return at
            radii[at] = min(float(radii[at]), gap / 2 - 1e-5)
            radius = min(radius, gap / 2)
        self.keys = torch.cat([self.keys, key[None]])
        self.values = torch.cat([self.values, value[None]])
        self.radii = torch.cat([radii, radii.new_tensor([radius])])
        self.tokens = torch.cat([self.tokens, torch.tensor([token])])
        return len(self.keys) - 1


@dataclass
class Grace(Editor):
    """Entries for the wrong positions, their values trained by Adam."""

    name: ClassVar[str] = "grace"
    layer: int | None = None  # late, but not the last (−2), as in that paper; −1 if there is one
    radius: float = 1.0  # ε_init
    learning_rate: float = 1.0
    steps: int = 100
    seed: int = 0

    def fit(self, model: Model, examples: Sequence[str | Example]) -> Self:
        """GRACE learns from mistakes alone."""
        return self

    def solve(self, model: Model, example: Example) -> Codebook:
        layer = self.layer if self.layer is not None else max(-2, -model.n_layers)
        net = twin(model.net).eval()
        place = ffn.find(net, layer)
        forced = force(model, [example.text], [example.answer])
        write(net, layer, None)
        with torch.no_grad():
            _, seen = Probe(net, [place.second]).run(forced)  # type: ignore[arg-type]
            now = model.task.as_decoded(model.net, forced, logits(model, model.net, forced))
        worn = newest(model.patches, layer)
        # behind the stock inputs come the activations of neurons that are worn: no part of a key
        d, h = place.width, seen[place.second].shape[1] - place.rows(net)
        book = Book(
            keys=worn.keys if worn else torch.empty(0, h),
            radii=worn.radii if worn else torch.empty(0),
            values=worn.values if worn else torch.empty(0, d),
            tokens=worn.tokens if worn else torch.empty(0, dtype=torch.long),
        )
        wrong = (now.argmax(-1).cpu() != forced.tokens).nonzero()[:, 0].tolist()
        draw = torch.Generator().manual_seed(self.seed)
        places = set()
        for at in wrong or range(len(forced.tokens)):
            value = torch.rand(d, generator=draw)  # "cold": that paper's way to begin
            key = seen[place.second][at, :h].cpu()
            places.add(book.insert(key, value, int(forced.tokens[at]), self.radius))
        mine = torch.tensor(sorted(places))
        trained = book.values[mine].clone().requires_grad_()
        others = book.values.clone()
        adam = torch.optim.Adam([trained], lr=self.learning_rate)
        for _ in range(self.steps):
            write(net, layer, (book.keys, book.radii, others.index_put((mine,), trained)))
            descend(cross_entropy(logits(model, net, forced), forced), adam)
        return Codebook(
            example=example,
            editor=self.name,
            report={"steps": self.steps, "entries": len(mine), "all entries": len(book.keys)},
            layer=layer,
            keys=book.keys,
            radii=book.radii,
            values=others.index_put((mine,), trained.detach()),
            tokens=book.tokens,
        )
