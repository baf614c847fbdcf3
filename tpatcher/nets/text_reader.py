"""A reader of the text's state while a net runs, whatever kind of net it is."""

import inspect
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from tpatcher.errors import BadInput
from tpatcher.nets.sentences import KEPT, Sentences
from tpatcher.nets.turns import QUESTION, asked_last, last_turn, said_again

# Positions that a decoder's mean is of: a question. What was said long before, as a system prompt
# or an earlier turn, is no part of what is asked.
WINDOW = 24
# Of a chat model a sentence encoder's numbers are of this size, a little more than its own sums'.
BESIDE = 0.05
# A net's attribute, where it has a chat template: the tokens that a turn begins with, and that a
# prompt ends with. They may be the same.
TURN = "turn"
SOME = 1_024  # rows of an embedding matrix that tell the size of all


class TextLayer(DynamicLayer):  # type: ignore[misc]
    """One more layer of a key-value cache: what s is of; turns' beginnings and ends, and tokens.

    As part of the cache it is reordered by beams and cropped by assisted decoding like any other.
    """


class Enough(Exception):
    """The text's state is known: the net need not run on."""


class TextReader:
    """Knows the text's state while a net runs. Every thread that runs the net has its own.

    A decoder is given the encoder's states and not the words. So what was read of a text is kept
    by the encoder's state of its first token; beams only copy those.
    """

    def __init__(self, kind: Literal["encoder", "running", "whole"]) -> None:
        self.kind, self.local, self.lock = kind, threading.local(), threading.Lock()
        self._read: OrderedDict[bytes, Tensor] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind,)  # a copy of a net has a reader of its own

    def begin(self, net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the net runs: note its mask, its cache and the states it is given."""
        named, here = _named(net, args, kwargs), self.local
        here.mask, here.states, here.cache = _mask(named), None, None
        if self.kind == "encoder":
            if (given := named.get("encoder_outputs")) is not None:
                self._recall(given[0])
            return None
        tokens = named.get("input_ids")
        here.batch = len(named["inputs_embeds"] if tokens is None else tokens)
        if self.kind == "whole":
            return None
        # where turns begin and prompts end, and the tokens, if the net is prompted in turns
        here.turns = None
        if (turn := vars(net).get(TURN)) is not None:
            if tokens is None:
                raise BadInput("fixes read where a prompt ends: give input_ids, no embeds")
            marked = [tokens == mark for mark in turn]
            here.turns = torch.stack([*marked, tokens], dim=-1).float()
        embeddings: Any = net.get_input_embeddings()  # type: ignore[operator]
        words = named["inputs_embeds"] if tokens is None else embeddings(tokens)
        here.words = words.detach() / _size(embeddings)
        here.cache = named.get("past_key_values")
        config: Any = net.config
        if here.cache is None and named.get("use_cache", config.use_cache):
            here.cache = kwargs["past_key_values"] = DynamicCache(config=config)
        return args, kwargs

    def encoded(
        self, encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """After the encoder has run: its states and its words are what the text is read from."""
        here, named = self.local, _named(encoder, args, kwargs)
        here.given, here.vectors = output[0], self.vectors(encoder, named, output[0]).detach()
        if torch.compiler.is_exporting():  # a graph has the encoder in it
            return
        with self.lock:
            for first, vector in zip(output[0][:, 0], here.vectors, strict=True):
                self._read[_bytes(first)] = vector
            while len(self._read) > KEPT:
                self._read.popitem(last=False)

    def vectors(self, encoder: nn.Module, named: dict[str, Any], states: Tensor) -> Tensor:
        """s (B, w) of the texts that an encoder has made these states of."""
        mask, words = _mask(named), named.get("inputs_embeds")
        embeddings: Any = encoder.get_input_embeddings()  # type: ignore[operator]
        if words is None:
            words = embeddings(named["input_ids"])
        words = _summed(words, mask) / _size(embeddings)
        return torch.cat([_summed(states, mask), words], dim=-1)

    def _recall(self, states: Tensor) -> None:
        """The vectors of the texts that these encoder states came from."""
        here = self.local
        if states is getattr(here, "given", None):
            return
        with self.lock:
            found = [self._read.get(_bytes(first)) for first in states[:, 0]]
        if any(vector is None for vector in found):
            raise BadInput(
                "these encoder_outputs were not made by this model, or long ago, and fixes read "
                "the text itself: give input_ids"
            )
        here.given, here.vectors = states, torch.stack(found)  # type: ignore[arg-type]

    def passed(self, matrix: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Before the early layer's first matrix: its queries join those of earlier passes."""
        here, queries = self.local, args[0].reshape(self.local.batch, -1, args[0].shape[-1])
        layer = None if here.cache is None else _text_layer(here.cache)
        words, turns = here.words.to(queries), queries.new_empty(*queries.shape[:2], 0)
        if here.turns is not None:
            turns = here.turns.to(queries.device)
            before = layer.values[:, 0] if layer is not None and layer.is_initialized else None
            words = words.masked_fill(said_again(turns, before)[..., None], 0)
        queries = torch.cat([queries, words], dim=-1)
        if layer is not None:
            both = layer.update(queries[:, None], turns[:, None])
            queries, turns = (one[:, 0] for one in both)
            if queries.shape[1] != here.cache.get_seq_length():
                raise BadInput(
                    f"this key-value cache holds {here.cache.get_seq_length()} tokens, but what "
                    f"fixes read of the text only {queries.shape[1]}: it was filled without them; "
                    "begin the text again with a new cache"
                )
        here.states = queries
        here.turns = here.tokens = None
        if turns.shape[-1]:
            here.turns, here.tokens = turns[..., :2] > 0, turns[..., 2].long()
        if getattr(here, "no_further", False):
            raise Enough

    def run(self, net: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """s at every position (B, n, w) of a generating net, run no further than s is read from.

        Of an encoder-decoder it is the same at all positions: n is 1.
        """
        if self.kind == "encoder":
            known = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            net.get_encoder()(**known)  # type: ignore[operator]
            found: Tensor = self.local.vectors
            return found[:, None]
        self.local.no_further = True
        try:
            with suppress(Enough):
                net(**inputs)
        finally:
            self.local.no_further = False
        batch, length = inputs["input_ids"].shape
        return self.state(self.local.states.new_empty(batch, length, 1))

    def state(self, queries: Tensor) -> Tensor:
        """s at every position of the last layer's queries, of their shape but for the width."""
        here = self.local
        if self.kind == "encoder":
            return _everywhere(here.vectors, queries)
        states = (queries if self.kind == "whole" else here.states).float().to(queries.device)
        if states.dim() == 2:  # OPT's layers see (batch·length, d)
            states = states.view(here.batch, -1, states.shape[-1])
        if self.kind == "whole":
            return _everywhere(_summed(states, here.mask), queries)
        mask = states.new_ones(states.shape[:2]) if here.mask is None else here.mask
        weight = mask[:, : states.shape[1], None].to(states)
        length = queries.numel() // (queries.shape[-1] * len(states))
        if here.turns is None:
            found = _recent(states * weight) / _recent(weight).clamp(min=1)
        else:
            found = asked_last(states * weight, weight, here.turns.to(states.device))
        return found[:, -length:].reshape(*queries.shape[:-1], found.shape[-1])

    def beside(self, queries: Tensor) -> Tensor:
        """[q ; s]: the queries with the text's state beside each, in float32."""
        return torch.cat([queries.float(), self.state(queries)], dim=-1)


class SentenceReader(TextReader):
    """A reader of the vector that a sentence encoder beside the net has for the text.

    Of a chat model that is what was asked last; where nobody has asked, it is 0.
    """

    def __init__(self, kind: Literal["encoder", "running", "whole"], sentences: Sentences) -> None:
        super().__init__(kind)
        self.sentences = sentences

    def __reduce__(self) -> tuple[Any, ...]:
        return SentenceReader, (self.kind, self.sentences)

    def begin(self, net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        super().begin(net, args, kwargs)
        if self.kind == "whole":
            self.local.sentence = self._of(_named(net, args, kwargs))

    def vectors(self, encoder: nn.Module, named: dict[str, Any], states: Tensor) -> Tensor:
        own = super().vectors(encoder, named, states)
        return torch.cat([own, self._of(named).to(own)], dim=-1)

    def state(self, queries: Tensor) -> Tensor:
        own = super().state(queries)
        if self.kind == "encoder":  # it is among its vectors
            return own
        running = self.kind == "running"
        beside = self._asked(queries) if running else _everywhere(self.local.sentence, queries)
        return torch.cat([own, beside.to(own)], dim=-1)

    def _asked(self, queries: Tensor) -> Tensor:
        """At every position of the queries, the vector of what was asked last."""
        tokens, batch = self.local.tokens, len(self.local.tokens)
        length = queries.numel() // (queries.shape[-1] * batch)
        begin, end = (one[:, -length:] for one in last_turn(self.local.turns))
        found = tokens.new_zeros(batch, length, self.sentences.width, dtype=torch.float)
        asked = {
            (row, *span)
            for row in range(batch)
            for span in zip(begin[row].tolist(), end[row].tolist(), strict=True)
            if span[1] > span[0] + 1  # something was asked
        }
        if asked:
            vectors = self._vectors([tokens[row, a + 1 : b] for row, a, b in asked])
            for (row, _, b), vector in zip(asked, vectors, strict=True):
                found[row, end[row] == b] = vector.to(found.device)
        return BESIDE * found.reshape(*queries.shape[:-1], found.shape[-1])

    def _of(self, named: dict[str, Any]) -> Tensor:
        if named.get("input_ids") is None:
            raise BadInput("fixes read the text by a sentence encoder: give input_ids, no embeds")
        return self._vectors(named["input_ids"])

    def _vectors(self, tokens: Iterable[Tensor]) -> Tensor:
        vectors = self.sentences.of(self.sentences.texts(tokens))
        return self.sentences.width**0.5 * vectors  # their numbers are of size 1, as words are


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a module is called with, by name."""
    return dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs


def _mask(named: dict[str, Any]) -> Tensor | None:
    mask = named.get("attention_mask")
    return mask if mask is not None and mask.dim() == 2 else None


def _summed(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """The sum over each text (B, T, d), in float32; without a mask all of it counts."""
    tokens = tokens.float()
    mask = tokens.new_ones(tokens.shape[:2]) if mask is None else mask
    weight = mask[:, : tokens.shape[1], None].to(tokens)
    return (tokens * weight).sum(1) / weight.sum(1).clamp(min=QUESTION)


def _size(embeddings: Any) -> Tensor:
    """The usual size of an input embedding's numbers: some nets' are small beside their states."""
    some: Tensor = embeddings.weight[:: max(1, len(embeddings.weight) // SOME)]
    return some.float().std()


def _everywhere(vectors: Tensor, queries: Tensor) -> Tensor:
    """A vector of each text (B, w) at every position of its queries."""
    batch, width = vectors.shape
    length = queries.numel() // (queries.shape[-1] * batch)
    spread = vectors.to(queries.device)[:, None].expand(batch, length, width)
    return spread.reshape(*queries.shape[:-1], width)


def _recent(states: Tensor) -> Tensor:
    """At each position, the sum of what is there and just before: (B, T, d)."""
    states = pad(states, (0, 0, WINDOW - 1, 0))
    return WINDOW * avg_pool1d(states.transpose(1, 2), WINDOW, stride=1).transpose(1, 2)


def _text_layer(cache: Cache) -> TextLayer:
    """The cache's own layer for queries, appended first if it has none."""
    if not isinstance(cache.layers[-1], TextLayer):
        cache.layers.append(TextLayer())
    return cache.layers[-1]  # type: ignore[no-any-return]


def _bytes(state: Tensor) -> bytes:
    return state.detach().float().cpu().numpy().tobytes()
