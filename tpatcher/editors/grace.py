"""GRACE (Hartvigsen et al., Aging with GRACE: Lifelong Model Editing with Discrete Key-Value
Adaptors, NeurIPS 2023): a codebook of keys with deferral radii in one layer.

An entry's key is the input of the layer's second matrix at an answer position; within its radius
the matrix's output is replaced by a trained value. GRACE looks at one token of a prompt; here every
answer position that is wrong gets an entry, so that generated answers of several tokens can be
fixed.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tpatcher.editors.base import Editor
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, descend, force, logits
from tpatcher.nets import ffn
from tpatcher.nets.probe import Probe
from tpatcher.nets.twin import twin
from tpatcher.patches.certificate import Certificate
from tpatcher.patches.codebook import Codebook, distances, effective, set_codebook


@dataclass
class Book:
    """The entries of a codebook while new ones are inserted."""

    keys: Tensor  # (n, h)
    radii: Tensor  # (n,)
    values: Tensor  # (n, d)
    tokens: Tensor  # (n,)

    def insert(self, key: Tensor, value: Tensor, token: int, radius: float) -> int:
        """Give a query an entry, as their Algorithm 1 does, and return the entry's index.

        Far from all other entries: a new one. Near one for the same answer: that one grows to
        reach the query. Near one for another answer: a new one, and both shrink to half their
        distance.
        """
        if not len(self.keys):
            return self._append(key, value, token, radius)
        to_each = distances(key[None], self.keys)[0]
        nearest = int(to_each.argmin())
        self.radii = self.radii.clone()  # an older patch holds the tensor
        gap, its_radius = float(to_each[nearest]), float(self.radii[nearest])
        if gap > radius + its_radius:
            return self._append(key, value, token, radius)
        if int(self.tokens[nearest]) == token:
            self.radii[nearest] = max(its_radius, gap)
            return nearest
        self.radii[nearest] = min(its_radius, gap / 2 - 1e-5)
        return self._append(key, value, token, min(radius, gap / 2))

    def _append(self, key: Tensor, value: Tensor, token: int, radius: float) -> int:
        self.keys = torch.cat([self.keys, key[None]])
        self.values = torch.cat([self.values, value[None]])
        self.radii = torch.cat([self.radii, self.radii.new_tensor([radius])])
        self.tokens = torch.cat([self.tokens, torch.tensor([token])])
        return len(self.keys) - 1


@dataclass
class Grace(Editor):
    """Entries for the wrong answer positions, their values trained by Adam."""

    name: ClassVar[str] = "grace"
    layer: int | None = None  # None: late but not the last (−2), as theirs; −1 if there is only one
    radius: float = 1.0  # ε_init
    learning_rate: float = 1.0
    steps: int = 100
    seed: int = 0

    def solve(self, model: Model, example: Example) -> Codebook:
        layer = self.layer if self.layer is not None else max(-2, -model.n_layers)
        net = twin(model.net).eval()
        layer_ffn = ffn.find(net, layer)
        forced = force(model, [example.text], [example.answer])
        set_codebook(net, layer, None)
        with torch.no_grad():
            _, seen = Probe(net, [layer_ffn.second]).run(forced)  # type: ignore[arg-type]
            current = model.task.as_decoded(model.net, forced, logits(model, model.net, forced))
        inputs = seen[layer_ffn.second]
        # behind the stock inputs come the activations of added neurons: no part of a key
        d, h = layer_ffn.width, inputs.shape[1] - layer_ffn.n_neurons(net)
        past = effective(model.patches, layer)
        if past:
            book = Book(past.keys, past.radii, past.values, past.tokens)
        else:
            none = torch.empty(0)
            book = Book(torch.empty(0, h), none, torch.empty(0, d), none.long())
        wrong = (current.argmax(-1).cpu() != forced.tokens).nonzero()[:, 0].tolist()
        draw = torch.Generator().manual_seed(self.seed)
        entries = set()
        for position in wrong or range(len(forced.tokens)):
            value = torch.rand(d, generator=draw)  # their "cold" start
            key, token = inputs[position, :h].cpu(), int(forced.tokens[position])
            entries.add(book.insert(key, value, token, self.radius))
        mine = torch.tensor(sorted(entries))
        trained = book.values[mine].clone().requires_grad_()
        values = book.values.clone()
        adam = torch.optim.Adam([trained], lr=self.learning_rate)
        for _ in range(self.steps):
            set_codebook(net, layer, (book.keys, book.radii, values.index_put((mine,), trained)))
            descend(cross_entropy(logits(model, net, forced), forced), adam)
        return Codebook(
            example=example,
            editor=self.name,
            certificate=Certificate(steps=self.steps),
            layer=layer,
            keys=book.keys,
            radii=book.radii,
            values=values.index_put((mine,), trained.detach()),
            tokens=book.tokens,
        )
