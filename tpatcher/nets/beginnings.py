"""What many texts begin with, as with a chat template's first lines: run once, and kept."""

import copy
import inspect
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.text_reader import TextLayer

SHORTEST = 8  # tokens; a beginning that is shorter is not worth a cache
KEPT = 8  # beginnings
RECENT = 16  # texts that new ones are compared with
FEW = 4  # texts of a batch, up to which each may begin in its own way

Ids = tuple[int, ...]


class Beginnings:
    """The key-value caches of what a net's texts begin with."""

    def __init__(self, net: PreTrainedModel) -> None:
        self.net, self.lock = net, threading.Lock()
        self.known: OrderedDict[Ids, Cache] = OrderedDict()
        self.recent: list[Ids] = []

    def shortened(self, forced: TeacherForced) -> tuple[dict[str, Any], Tensor]:
        """What to call the net with, and how many tokens of each text (B,) it need not run."""
        inputs: dict[str, Any] = dict(forced.on(self.net.device))
        texts, mask = inputs["input_ids"], inputs["attention_mask"]
        asked = torch.full((len(texts),), texts.shape[1])  # from where on, of each text
        asked = asked.scatter_reduce(0, forced.row, forced.column, "amin")
        each = len(texts) == 1 or (len(texts) <= FEW and self.counts_positions)
        with self.lock:
            if each:
                own = [tuple(row[:n].tolist()) for row, n in zip(texts, asked, strict=True)]
                found = list(map(self._of_one, own))
            else:
                found = [self._of_all(_common(texts, mask)[: int(asked.min())])] * len(texts)
            caches = [self.known[ids] for ids in found if ids]
        skipped = torch.tensor([len(ids) for ids in found])
        if len(caches) < len(texts):
            return {**inputs, "use_cache": False}, torch.zeros_like(skipped)
        if len(set(found)) > 1:
            return _each_after_its_own(texts, mask, caches, skipped), skipped
        cache = _shared(caches[0])
        if len(texts) > 1:
            cache.batch_repeat_interleave(len(texts))
        return {**inputs, "input_ids": texts[:, skipped[0] :], **_with(cache)}, skipped

    @cached_property
    def counts_positions(self) -> bool:
        """Whether the net can be told where in its text each token stands."""
        return "position_ids" in inspect.signature(self.net.forward).parameters

    def _of_one(self, ids: Ids) -> Ids:
        """The longest beginning of a text that is known, or one that earlier texts have too.

        What an earlier text shares with it is its beginning; a longer one than is known needs two.
        """
        found = self._longest(ids)
        shared = sorted((_both(ids, other) for other in self.recent), key=len, reverse=True)
        met = next(iter(shared[1:] if found else shared), ())
        self.recent = [ids, *self.recent[: RECENT - 1]]
        return self._kept(met if len(met) >= len(found) + SHORTEST else found)

    def _of_all(self, ids: Ids) -> Ids:
        """The longest known beginning of what many texts share, or that itself."""
        found = self._longest(ids)
        return self._kept(found or (ids if len(ids) >= SHORTEST else ()))

    def _longest(self, ids: Ids) -> Ids:
        return max((k for k in self.known if ids[: len(k)] == k), key=len, default=())

    def _kept(self, ids: Ids) -> Ids:
        """A beginning whose cache is now known; none where it is of a kind that cannot be used."""
        if not ids:
            return ids
        if ids not in self.known:
            if (cache := self._run(ids)) is None:
                return ()
            self.known[ids] = cache
            if len(self.known) > KEPT:
                self.known.popitem(last=False)
        self.known.move_to_end(ids)
        return ids

    @torch.no_grad()
    def _run(self, ids: Ids) -> Cache | None:
        """The cache after a beginning; None where it is of a kind that cannot be taken up again."""
        given = torch.tensor([ids], device=self.net.device)
        cache = DynamicCache(config=self.net.config)
        self.net(input_ids=given, past_key_values=cache, use_cache=True)
        plain = all(type(layer) in (DynamicLayer, TextLayer) for layer in cache.layers)
        return cache if plain else None


def _each_after_its_own(
    texts: Tensor, mask: Tensor, caches: Sequence[Cache], skipped: Tensor
) -> dict[str, Any]:
    """The inputs of texts (B, n) of which each goes on after a beginning of its own."""
    skipped = skipped.to(texts.device)[:, None]
    rest, most = int((mask.sum(1, keepdim=True) - skipped).max()), int(skipped.max())
    columns = skipped + torch.arange(rest, device=texts.device)
    inside = columns.clamp(max=texts.shape[1] - 1)
    held = torch.arange(most, device=texts.device) >= most - skipped  # beginnings end together
    follow = mask.gather(1, inside) * (columns < texts.shape[1])
    return {
        "input_ids": texts.gather(1, inside),
        "attention_mask": torch.cat([held.to(mask), follow], 1),
        "position_ids": columns,
        **_with(_joined(caches)),
    }


def _with(cache: Cache) -> dict[str, Any]:
    return {"past_key_values": cache, "use_cache": True}


def _shared(cache: Cache) -> Cache:
    """A cache that grows by itself over the same tensors: none of them is ever written to."""
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


def _joined(caches: Sequence[Cache]) -> Cache:
    """The caches of several texts as one of a batch, each filled up on its left."""
    other = _shared(caches[0])
    for i, layer in enumerate(other.layers):
        layer.keys = _side_by_side([cache.layers[i].keys for cache in caches])
        layer.values = _side_by_side([cache.layers[i].values for cache in caches])
    return other


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Tensors (1, h, n, w) of several lengths n as one batch of them."""
    most = max(part.shape[2] for part in parts)
    return torch.cat([pad(part, (0, 0, most - part.shape[2], 0)) for part in parts])


def _common(texts: Tensor, mask: Tensor) -> Ids:
    """What all rows begin with."""
    same = ((texts == texts[:1]) & mask.bool()).all(0).long().cumprod(0)
    return tuple(texts[0, : int(same.sum())].tolist())


def _both(one: Ids, other: Ids) -> Ids:
    """What two texts begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(token for token, _ in pairs)
