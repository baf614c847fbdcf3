"""A sentence encoder beside a net: what the net's own tokens say, as one vector a text.

An encoder that was trained to tell what texts mean knows rephrasings better than a small net does.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from tpatcher.errors import BadInput

KEPT = 4_096  # texts whose vectors are remembered


def load(name: str) -> tuple[Any, Any]:
    """A sentence encoder and its tokenizer, from a directory or the hub."""
    try:
        stock: Any = {"trust_remote_code": False}  # or Transformers asks whether to run it
        net = AutoModel.from_pretrained(name, **stock).eval()
        return net, AutoTokenizer.from_pretrained(name, **stock)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load the sentence encoder {name!r}: {error}") from error


known = cache(load)  # once per process: nobody trains it


def mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """The mean of each text's token states (B, T, d), in float32."""
    weight = mask[..., None].float()
    return (tokens.float() * weight).sum(1) / weight.sum(1)


class Sentences:
    """What the texts that a net is given mean, by a sentence encoder of this name."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.encoder, self.own_tokenizer = known(name)
        self.width = int(self.encoder.config.hidden_size)
        self._vectors: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentences, (self.name, self.tokenizer)  # a copy of a net has the same encoder

    @torch.no_grad()
    def of(self, texts: Sequence[str]) -> Tensor:
        """The mean of each text's last token states at length 1, (B, width), on the CPU."""
        with self._lock:
            found = {text: self._vectors[text] for text in texts if text in self._vectors}
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new:
            inputs = self.own_tokenizer(new, return_tensors="pt", padding=True, truncation=True)
            states = self.encoder(**inputs).last_hidden_state
            vectors = normalize(mean(states, inputs["attention_mask"]), dim=-1)
            found |= zip(new, vectors, strict=True)
        with self._lock:
            for text, vector in found.items():
                self._vectors[text] = vector
                self._vectors.move_to_end(text)
            while len(self._vectors) > KEPT:
                self._vectors.popitem(last=False)
        return torch.stack([found[text] for text in texts])

    def texts(self, ids: Iterable[Tensor]) -> list[str]:
        """What these tokens of the net, text by text, say."""
        return self.tokenizer.batch_decode(list(ids), skip_special_tokens=True)

    @property
    def fingerprint(self) -> str:
        """A short hash of the encoder: fixes that read by it fit no other."""
        digest = hashlib.sha256()
        for key, tensor in sorted(self.encoder.state_dict().items()):
            flat = tensor.detach().flatten()
            digest.update(key.encode())
            digest.update(flat[:: max(1, len(flat) // 64)][:64].float().cpu().numpy().tobytes())
        return digest.hexdigest()[:8]
