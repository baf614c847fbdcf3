"""What a key may read beside the query of its own position: the state of the whole text.

A query of the last layer is mostly about the next token; the text's state s tells what was asked.
It comes from layers that no patch of the last layer changes, so cached answers stay exact.

| net | s at a position |
|---|---|
| encoder-decoder | the mean of the encoder's states, and that of the words it reads |
| generating decoder | the mean of an early layer's queries, here and just before |
| any other | the mean of the last layer's queries over the whole text |
| one with a sentence encoder beside it | the encoder's vector of the whole text |

Words are the net's own input embeddings. Of two questions about one subject the encoder's states
are much alike; which words they are of is what tells them apart.
"""

import inspect
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from tpatcher.errors import BadInput
from tpatcher.nets import ffn
from tpatcher.nets.rows import Rows
from tpatcher.nets.sentences import KEPT, Sentences

Reads = Literal["position", "text"]
VERSION = 2  # of what the text's state is: 1 had no words in it
EARLY = 5  # of a decoder's layers, the one after the first fifth: later ones are about what follows
# Positions that a decoder's mean is of: a question and the beginning of its answer. What was said
# long before, as a system prompt or an earlier turn, is no part of what is asked.
WINDOW = 24
SOME = 1_024  # rows of an embedding matrix that tell the size of all


class TextLayer(DynamicLayer):  # type: ignore[misc]
    """One more layer of a key-value cache, which keeps the queries that the mean is of.

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
        some = embeddings.weight[:: max(1, len(embeddings.weight) // SOME)]
        size = some.float().std()  # some nets' are small beside their states
        return torch.cat([_mean(states, mask), _mean(words, mask) / size], dim=-1)

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
        if here.cache is not None:
            layer = _text_layer(here.cache)
            nothing = queries.new_empty(*queries.shape[:2], 0)
            queries = layer.update(queries[:, None], nothing[:, None])[0][:, 0]
            if queries.shape[1] != here.cache.get_seq_length():
                raise BadInput(
                    f"this key-value cache holds {here.cache.get_seq_length()} tokens, but what "
                    f"fixes read of the text only {queries.shape[1]}: it was filled without them; "
                    "begin the text again with a new cache"
                )
        here.states = queries
        if getattr(here, "no_further", False):
            raise Enough

    def run(self, net: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """s at every position (B, n, w) of a decoder, run no further than s is read from."""
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
            return _everywhere(_mean(states, here.mask), queries)
        mask = torch.ones(states.shape[:2]) if here.mask is None else here.mask
        weight = mask[:, : states.shape[1], None].to(states)
        length = queries.numel() // (queries.shape[-1] * len(states))
        mean = _recent(states * weight, length) / _recent(weight, length).clamp(min=1)
        return mean.reshape(*queries.shape[:-1], mean.shape[-1])

    def beside(self, queries: Tensor) -> Tensor:
        """[q ; s]: the queries with the text's state beside each, in float32."""
        return torch.cat([queries.float(), self.state(queries)], dim=-1)


class SentenceReader(TextReader):
    """A reader of the vector that a sentence encoder beside the net has for the text."""

    def __init__(self, kind: Literal["encoder", "whole"], sentences: Sentences) -> None:
        super().__init__(kind)
        self.sentences = sentences

    def __reduce__(self) -> tuple[Any, ...]:
        return SentenceReader, (self.kind, self.sentences)

    def begin(self, net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        super().begin(net, args, kwargs)
        if self.kind == "whole":
            self.local.vectors = self._of(_named(net, args, kwargs))

    def vectors(self, encoder: nn.Module, named: dict[str, Any], states: Tensor) -> Tensor:
        return self._of(named)

    def state(self, queries: Tensor) -> Tensor:
        return _everywhere(self.local.vectors, queries)

    def _of(self, named: dict[str, Any]) -> Tensor:
        if named.get("input_ids") is None:
            raise BadInput("fixes read the text by a sentence encoder: give input_ids, no embeds")
        return self.sentences.of(self.sentences.texts(named["input_ids"]))


def read_by(net: PreTrainedModel, sentences: Sentences) -> None:
    """Have all keys that read the text read it by a sentence encoder, from now on."""
    if net.config.is_encoder_decoder:
        reader = SentenceReader("encoder", sentences)
        net.get_encoder().register_forward_hook(reader.encoded, with_kwargs=True)
    elif net.can_generate():
        raise BadInput(
            "a sentence encoder reads whole texts, but a language model's text grows with every "
            "token: load it without encoder="
        )
    else:
        reader = SentenceReader("whole", sentences)
    net.register_forward_pre_hook(reader.begin, with_kwargs=True)


def install(net: PreTrainedModel) -> TextReader:
    """The net's reader, put on first if it has none."""
    if (known := _installed(net)) is not None:
        return known
    if net.config.is_encoder_decoder:
        reader = TextReader("encoder")
        net.get_encoder().register_forward_hook(reader.encoded, with_kwargs=True)
    elif net.can_generate():
        reader = TextReader("running")
        _early_matrix(net).register_forward_pre_hook(reader.passed)
    else:
        reader = TextReader("whole")
    net.register_forward_pre_hook(reader.begin, with_kwargs=True)
    return reader


def remove(net: PreTrainedModel) -> None:
    """Take the net's reader off again: no hook of it is left."""
    reader = _installed(net)
    if reader is None or isinstance(reader, SentenceReader):  # the latter came with the net
        return
    modules = [net]
    if reader.kind == "encoder":
        modules.append(net.get_encoder())
    if reader.kind == "running":
        modules.append(_early_matrix(net))
    for module in modules:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [k for k, hook in hooks.items() if _owner(hook) is reader]:
                del hooks[key]
                module._forward_pre_hooks_with_kwargs.pop(key, None)
                module._forward_hooks_with_kwargs.pop(key, None)


def widen(net: PreTrainedModel, layer: ffn.FFN, rows: Rows) -> None:
    """Give a layer these neurons, and the net a reader if their keys read the text."""
    if rows.width > layer.width:
        layer.widen(net, rows, install(net).beside)
        return
    layer.widen(net, rows)
    if layer.first == ffn.find(net).first:  # only the last layer's keys read the text
        remove(net)


def text_width(net: PreTrainedModel) -> int:
    """The length of s."""
    if isinstance(reader := _installed(net), SentenceReader):
        return reader.sentences.width
    if net.config.is_encoder_decoder:
        words: Any = net.get_encoder().get_input_embeddings()
        return int(net.config.hidden_size) + int(words.weight.shape[-1])
    return ffn.find(net).width


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a module is called with, by name."""
    return dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs


def _mask(named: dict[str, Any]) -> Tensor | None:
    mask = named.get("attention_mask")
    return mask if mask is not None and mask.dim() == 2 else None


def _mean(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over each text (B, T, d), in float32; without a mask all of it counts."""
    tokens = tokens.float()
    if mask is None:
        return tokens.mean(1)
    weight = mask[:, : tokens.shape[1], None].to(tokens)
    return (tokens * weight).sum(1) / weight.sum(1).clamp(min=1)


def _everywhere(vectors: Tensor, queries: Tensor) -> Tensor:
    """A vector of each text (B, w) at every position of its queries."""
    batch, width = vectors.shape
    length = queries.numel() // (queries.shape[-1] * batch)
    spread = vectors.to(queries.device)[:, None].expand(batch, length, width)
    return spread.reshape(*queries.shape[:-1], width)


def _recent(states: Tensor, length: int) -> Tensor:
    """At each of the last positions, the sum of what is there and just before: (B, length, d)."""
    states = states[:, -(length + WINDOW - 1) :]
    states = pad(states, (0, 0, length + WINDOW - 1 - states.shape[1], 0))
    return WINDOW * avg_pool1d(states.transpose(1, 2), WINDOW, stride=1).transpose(1, 2)


def _installed(net: nn.Module) -> TextReader | None:
    owners = map(_owner, net._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, TextReader)), None)


def _owner(hook: Any) -> object:
    return getattr(hook, "__self__", None)


def _early_matrix(net: PreTrainedModel) -> nn.Module:
    layer = len(ffn.layers(net)) // EARLY
    return ffn.unwrap(net.get_submodule(ffn.find(net, layer).first))


def _text_layer(cache: Cache) -> TextLayer:
    """The cache's own layer for queries, appended first if it has none."""
    if not isinstance(cache.layers[-1], TextLayer):
        cache.layers.append(TextLayer())
    return cache.layers[-1]  # type: ignore[no-any-return]


def _bytes(state: Tensor) -> bytes:
    return state.detach().float().cpu().numpy().tobytes()
