"""What a model is asked to do: text in, answer out, and where in the net an answer is decided."""

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tpatcher.errors import BadInput, UnsupportedArchitecture, unknown
from tpatcher.example import normal, refuse_empty


@dataclass(frozen=True)
class TeacherForced:
    """A batch of texts with given answers, for one teacher-forced forward pass.

    Answer position p is at (row[p], column[p]) of the stack that is patched; `tokens[p]` is
    the given label or token there, `step[p]` how many tokens were given before it.
    """

    inputs: dict[str, Tensor]
    row: Tensor
    column: Tensor
    tokens: Tensor
    step: Tensor

    def at(self, positions: Tensor) -> Self:
        """The same batch with some of its positions alone."""
        names = ("row", "column", "tokens", "step")
        return replace(self, **{name: getattr(self, name)[positions] for name in names})

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """The inputs to call the net with, on its device."""
        return on_device(self.inputs, device)


class Task(ABC):
    """One of the three things that a transformer is deployed for."""

    name: ClassVar[str]
    generates: ClassVar[bool]  # an answer is a text of several tokens, not one label

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.lock = threading.Lock()
        known = [tokenizer.model_max_length, getattr(net.config, "max_position_embeddings", None)]
        self.context = min((n for n in known if n and n > 0), default=10**9)

    def answer(self, net: PreTrainedModel, texts: Sequence[str]) -> list[str]:
        """Answers by really running the net on one batch."""
        return self.decode(self.predict(net, texts))

    def prompt(self, text: str) -> str:
        """The text as the net is really asked it."""
        return text

    def for_prompts(self) -> Self:
        """The same task for texts that are prompts already."""
        return self

    def readings(self) -> list[Self]:
        """This task, once for each position that the net's head may read an answer from."""
        return [self]

    def reading_all(self) -> Self:
        """This task for a head that reads none of those positions alone."""
        return self

    @abstractmethod
    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """The answers that labels or tokens stand for."""

    @abstractmethod
    def target(self, text: str, answer: str) -> list[int]:
        """The label, or the tokens with the end token, that the net must give for this answer."""

    @abstractmethod
    def predict(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        """What the net answers now, in the form of `target`."""

    @abstractmethod
    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> TeacherForced:
        """The batch that makes the net go through these answers."""

    @abstractmethod
    def logits(self, output: Any, forced: TeacherForced) -> Tensor:
        """The net's logits at the answer positions, (P, labels or tokens)."""

    @abstractmethod
    def dummy_targets(self, n: int) -> list[list[int]]:
        """n arbitrary targets, to try the net out with."""

    @abstractmethod
    def head_inputs(self, net: PreTrainedModel, forced: TeacherForced) -> dict[str, Tensor]:
        """What to call a net with whose stack of layers returns given hidden states."""

    def flatten_logits(self, logits: Tensor) -> Tensor:
        """The logits of a call with `head_inputs`, as (P, labels or tokens)."""
        return logits[0]

    def as_decoded(self, net: PreTrainedModel, forced: TeacherForced, logits: Tensor) -> Tensor:
        """Logits as greedy decoding sees them; the generation config may forbid or force tokens."""
        return logits

    def canonical(self, answer: str) -> str:
        """The answer as the model itself would spell it."""
        return answer

    def tokenize(self, *args: Any, **kwargs: Any) -> Any:
        """The tokenizer, one thread at a time: padding and truncation are settings inside it."""
        with self.lock:
            return self.tokenizer(*args, **kwargs)

    def encode(self, texts: Sequence[str], side: str = "right", **more: Any) -> dict[str, Tensor]:
        """Token ids and mask, padded on one side; warns of texts that it has to truncate."""
        for text in texts:
            refuse_empty(text)
            if any("\ud800" <= c <= "\udfff" for c in text):
                raise BadInput(f"a text holds half a character: {text!r:.60}")
        options = {"padding": True, "padding_side": side, "truncation": True, **more}
        out = self.tokenize(list(texts), return_tensors="pt", max_length=self.context, **options)
        for text, length in zip(texts, out["attention_mask"].sum(-1).tolist(), strict=True):
            if length >= self.context:  # it just fits, or was cut
                length = len(self.tokenize(text, verbose=False, **more).input_ids)
                if length > self.context:
                    cut = f"a text of {length} tokens is cut to the model's {self.context}"
                    warnings.warn(cut, stacklevel=2)
        return {k: v for k, v in out.items() if k in ("input_ids", "attention_mask")}


class Classify(Task):
    """One label out of several, read by the head from one token (or from all)."""

    name = "classify"
    generates = False
    reads_from: Literal["first", "last", "all"] = "first"  # tokens of the text

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        config = net.config
        if config.problem_type == "multi_label_classification":
            raise UnsupportedArchitecture(
                "this is a multi-label head: several labels can be right at once, so a mistake is "
                "not one wrong label; single-label classifiers can be patched"
            )
        if config.problem_type == "regression":
            raise UnsupportedArchitecture(
                "this is a regression head: it gives a number, not a label, so no answer of it is "
                "right or wrong; if it is a yes/no classifier, remove problem_type from its config"
            )
        single = config.num_labels == 1  # no for a logit below 0, yes above
        names = ["0", "1"] if single else [config.id2label[i] for i in range(config.num_labels)]
        self.labels: list[str] = names

    def readings(self) -> list[Self]:
        return [self._reading("first"), self._reading("last")]

    def reading_all(self) -> Self:
        return self._reading("all")

    def _reading(self, position: Literal["first", "last", "all"]) -> Self:
        other = copy(self)
        other.reads_from = position
        return other

    def canonical(self, answer: str) -> str:
        return self.labels[self.target("", answer)[0]]

    def target(self, text: str, answer: str) -> list[int]:
        names = [normal(label) for label in self.labels]
        wanted = normal(answer)
        if wanted in names:
            return [names.index(wanted)]
        if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(names):
            return [int(wanted)]
        raise unknown("label", answer, self.labels)

    def predict(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        inputs = on_device(self.encode(texts), net.device)
        return [[int(i)] for i in _binary_as_two(net(**inputs).logits).argmax(-1)]

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        return [self.labels[i] for (i,) in targets]

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> TeacherForced:
        inputs = self.encode(texts)
        mask = inputs["attention_mask"]
        row, last = torch.arange(len(texts)), mask.cumsum(-1).argmax(-1)
        if self.reads_from == "all":
            row, column = mask.nonzero(as_tuple=True)
        else:
            column = last if self.reads_from == "last" else mask.argmax(-1)
        tokens = torch.tensor([t for (t,) in targets])[row]
        return TeacherForced(inputs, row, column, tokens, torch.zeros_like(row))

    def logits(self, output: Any, forced: TeacherForced) -> Tensor:
        return _binary_as_two(output.logits)[forced.row]

    def dummy_targets(self, n: int) -> list[list[int]]:
        return [[0]] * n

    def head_inputs(self, net: PreTrainedModel, forced: TeacherForced) -> dict[str, Tensor]:
        # the token that the head looks for, if it looks for one
        token = forced.inputs["input_ids"][0, forced.column[0]]
        inputs = {"input_ids": token[None, None].to(net.device)}
        if net.config.is_encoder_decoder:
            inputs["encoder_outputs"] = torch.zeros(1, 1, 1, device=net.device)
        return {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])}

    def flatten_logits(self, logits: Tensor) -> Tensor:
        return _binary_as_two(logits)


def on_device(inputs: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """A net's inputs, moved to a device."""
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _binary_as_two(logits: Tensor) -> Tensor:
    """A single yes/no logit as two: 0 for no, itself for yes."""
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], dim=-1)
