"""What many texts begin with, as with a chat template's first lines: run once, and kept."""

import copy
import threading
from collections import OrderedDict
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.text_reader import TextLayer

SHORTEST = 8  # tokens; a beginning that is shorter is not worth a cache
KEPT = 8  # beginnings, and texts that new ones are compared with

Ids = tuple[int, ...]


class Beginnings:
    """The key-value caches of what a net's texts begin with."""

    def __init__(self, net: PreTrainedModel) -> None:
        self.net, self.lock = net, threading.Lock()
        self.known: OrderedDict[Ids, Cache] = OrderedDict()
        self.recent: list[Ids] = []

    def shortened(self, forced: TeacherForced) -> tuple[dict[str, Any], int]:
        """What to call the net with, and how many tokens it need not run again."""
        inputs: dict[str, Any] = dict(forced.on(self.net.device))
        texts, mask = inputs["input_ids"], inputs["attention_mask"]
        before = int(forced.column.min()) if len(forced.column) else 0  # what is asked for
        with self.lock:
            cache, n = self._find(_common(texts, mask)[:before], one=len(texts) == 1)
        if cache is None:
            return {**inputs, "use_cache": False}, 0
        cache = _shared(cache)
        if len(texts) > 1:
            cache.batch_repeat_interleave(len(texts))
        return {**inputs, "input_ids": texts[:, n:], "past_key_values": cache, "use_cache": True}, n

    def _find(self, ids: Ids, one: bool) -> tuple[Cache | None, int]:
        """The cache of the longest beginning that is known, or of one that is met again."""
        found = max((k for k in self.known if ids[: len(k)] == k), key=len, default=())
        if not found:
            # of a single text, what it has in common with an earlier one is its beginning
            found = max((_both(ids, r) for r in self.recent), key=len, default=()) if one else ids
            self.recent = [ids, *self.recent[: KEPT - 1]]
            if len(found) < SHORTEST or (cache := self._run(found)) is None:
                return None, 0
            self.known[found] = cache
            if len(self.known) > KEPT:
                self.known.popitem(last=False)
        self.known.move_to_end(found)
        return self.known[found], len(found)

    @torch.no_grad()
    def _run(self, ids: Ids) -> Cache | None:
        """The cache after a beginning; None where it is of a kind that cannot be taken up again."""
        given = torch.tensor([ids], device=self.net.device)
        cache = DynamicCache(config=self.net.config)
        self.net(input_ids=given, past_key_values=cache, use_cache=True)
        plain = all(type(layer) in (DynamicLayer, TextLayer) for layer in cache.layers)
        return cache if plain else None


def _shared(cache: Cache) -> Cache:
    """A cache that grows by itself over the same tensors: none of them is ever written to."""
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


def _common(texts: Tensor, mask: Tensor) -> Ids:
    """What all rows begin with."""
    same = ((texts == texts[:1]) & mask.bool()).all(0).long().cumprod(0)
    return tuple(texts[0, : int(same.sum())].tolist())


def _both(one: Ids, other: Ids) -> Ids:
    """What two texts begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(token for token, _ in pairs)
