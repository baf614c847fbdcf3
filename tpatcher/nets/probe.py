"""What enters some modules of a net at answer positions, while it is run or while it answers."""

import inspect
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.generation import LogitsProcessor

from tpatcher.nets import reading
from tpatcher.nets.beginnings import Beginnings
from tpatcher.nets.generation import Seq2Seq
from tpatcher.nets.products import quickened
from tpatcher.nets.reading import Reads
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin


class Probe:
    """A twin of the net that also tells what enters some of its modules, to any one thread."""

    def __init__(self, net: PreTrainedModel, names: list[str], reads: Reads = "position") -> None:
        """With `reads="text"`, the first module's inputs have the text's state beside them."""
        self.net = quickened(twin(net))
        self.names, self.local = names, threading.local()
        self.reader = reading.install(self.net) if reads == "text" else None
        for name in names:
            module = self.net.get_submodule(name)
            module.register_forward_pre_hook(self._remember(name), with_kwargs=True)
        head = self.net.get_output_embeddings() if self.net.can_generate() else None
        if head is not None and not self.keeps_logits:
            head.register_forward_pre_hook(self._last_alone)

    def _last_alone(self, head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        return (args[0][:, -1:], *args[1:]) if self.local.without_logits else None

    def _remember(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.local.seen[name] = args[0] if args else next(iter(kwargs.values()))

        return hook

    def run(self, forced: TeacherForced, **options: Any) -> tuple[Any, dict[str, Tensor]]:
        """The net's output, and what entered each named module at the answer positions."""
        self.local.seen, self.local.without_logits = {}, False
        output = self.net(**forced.on(self.net.device), **options)
        return output, self._at(forced.inputs, forced.row, forced.column)

    @torch.no_grad()
    def seen(self, forced: TeacherForced) -> dict[str, Tensor]:
        """What entered each named module at the answer positions: no logits are worked out.

        What the texts of a decoder begin with is run once for all of them.
        """
        self.local.seen, self.local.without_logits = {}, True
        inputs, columns = dict[str, Any](forced.on(self.net.device)), forced.column
        if not self.net.config.is_encoder_decoder:
            inputs, skipped = self.beginnings.shortened(forced)
            columns = columns - skipped[forced.row]
        self.net(**inputs, **({"logits_to_keep": 1} if self.keeps_logits else {}))
        return self._at(inputs, forced.row, columns)

    @torch.no_grad()
    def answer(self, task: Seq2Seq, texts: Sequence[str]) -> tuple[list[list[int]], "Chosen"]:
        """The net's own answers, and what was seen where each of their tokens was chosen."""
        self.local.seen, self.local.without_logits = {}, False
        watcher = Watcher(self)
        targets = task.predict(self.net, texts, watcher)
        return targets, watcher.chosen(list(map(len, targets)))

    @torch.no_grad()
    def text_states(self, forced: TeacherForced) -> Tensor:
        """s at the answer positions, by the layers alone that it is read from."""
        assert self.reader is not None
        self.local.seen, self.local.without_logits = {}, True  # a new beginning is run whole
        if self.net.config.is_encoder_decoder:
            return self.reader.run(self.net, forced.on(self.net.device))[forced.row, 0]
        inputs, skipped = self.beginnings.shortened(forced)
        states = self.reader.run(self.net, inputs)
        return states[forced.row, forced.column - skipped[forced.row]]

    @cached_property
    def beginnings(self) -> Beginnings:
        """What this net's texts begin with."""
        return Beginnings(self.net)

    @cached_property
    def keeps_logits(self) -> bool:
        """Whether the net can be told to work out the last logits alone."""
        return "logits_to_keep" in inspect.signature(self.net.forward).parameters

    def _at(self, inputs: Mapping[str, Any], row: Tensor, column: Tensor) -> dict[str, Tensor]:
        """What was seen at these rows and columns of a batch that has been run."""
        length = inputs.get("decoder_input_ids", inputs["input_ids"]).shape[1]
        flat = (row * length + column).to(self.net.device)
        if self.reader is not None:
            queries = self.local.seen[self.names[0]]
            self.local.seen[self.names[0]] = self.reader.beside(queries)
        # OPT's layers see (batch·length, d) instead of (batch, length, d)
        return {k: v.reshape(-1, v.shape[-1])[flat].float() for k, v in self.local.seen.items()}


class Chosen(NamedTuple):
    """What was seen where the P tokens of some answers were chosen, answer by answer."""

    seen: dict[str, Tensor]  # each (P, …)
    best: Tensor  # (P,): the token that won
    gap: Tensor  # (P,): by how much


class Watcher(LogitsProcessor):  # type: ignore[misc]
    """Notes what its probe has seen whenever generation chooses a token."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.steps = probe, list[tuple[dict[str, Tensor], Tensor, Tensor]]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        probe, two = self.probe, scores.topk(2, dim=-1)
        seen = dict(probe.local.seen)
        if probe.reader is not None:
            seen[probe.names[0]] = probe.reader.beside(seen[probe.names[0]])
        now = {name: v.reshape(len(scores), -1, v.shape[-1])[:, -1] for name, v in seen.items()}
        self.steps.append((now, two.indices[:, 0], two.values[:, 0] - two.values[:, 1]))
        return scores

    def chosen(self, lengths: list[int]) -> Chosen:
        """All that was noted, of answers of these lengths."""
        steps = torch.arange(len(self.steps))
        part = steps < torch.tensor(lengths)[:, None]  # (B, steps): generation goes on beside them
        seen, best, gap = zip(*self.steps, strict=True)
        return Chosen(
            {n: _at([s[n] for s in seen], part).float() for n in self.probe.names},
            _at(best, part).cpu(),
            _at(gap, part).float().cpu(),
        )


def _at(steps: Sequence[Tensor], part: Tensor) -> Tensor:
    """What there was at some of the steps (B, …) of generation."""
    every = torch.stack(list(steps), 1)
    return every[part.to(every.device)]
