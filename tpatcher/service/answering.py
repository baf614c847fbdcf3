"""A patched net that also tells which of its patches fired, in the very run that answers."""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from tpatcher.errors import BadInput
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.twin import twin
from tpatcher.patches.neurons import Neurons, rows


@dataclass(frozen=True)
class Said:
    """One answer: its label or tokens, its words, and what happened at its positions."""

    ids: list[int]
    text: str
    fired: dict[int, float]  # by place among the model's patches: the largest pre-activation
    queries: Tensor  # (P, d), of the last layer


class Watch:
    """A twin of a model that any number of threads may ask at once."""

    def __init__(self, model: Model) -> None:
        if any(patch.kind == "recall" for patch in model.patches):
            raise BadInput(
                "edits that are looked up (SERA) are in no net, so they cannot be served"
            )
        self.model = model
        self.task = copy(model.task)
        if model.task.name == "causal":  # prompts come in as the model is to see them
            self.task.prompt = str  # type: ignore[attr-defined]
        self.net: Any = twin(model.net)
        self.local = threading.local()
        worn = [(i, p) for i, p in enumerate(model.patches) if isinstance(p, Neurons)]
        self.whose, self.keys = {}, {}
        for layer in {-1, *(p.layer for _, p in worn)}:
            self.whose[layer] = torch.tensor(
                [i for i, p in worn if p.layer == layer for _ in p.bias], dtype=torch.long
            )
            keys, bias, _ = rows(model.patches, layer)
            self.keys[layer] = keys.to(model.net.device), bias.to(model.net.device)
            first = self.net.get_submodule(ffn.find(model.net, layer).first)
            first.register_forward_pre_hook(self._note(layer), with_kwargs=True)

    def _note(self, layer: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            query = args[0] if args else next(iter(kwargs.values()))
            query = query.reshape(self.local.batch, -1, query.shape[-1])  # OPT flattens
            one = self.task.name == "classify"
            self.local.seen.setdefault(layer, []).append(query if one else query[:, -1:])

        return hook

    @torch.inference_mode()
    def say(self, prompts: Sequence[str]) -> list[Said]:
        """Answers to one batch, really run."""
        self.local.batch, self.local.seen = len(prompts), {}
        ids = self.task.predict(self.net, prompts)
        return self._told(prompts, ids)

    @torch.inference_mode()
    def stream(self, prompt: str, hear: Callable[[int], bool]) -> Said:
        """One answer, generated token by token; it stops when `hear` no longer wants to."""
        self.local.batch, self.local.seen = 1, {}
        causal = self.task.name == "causal"
        special = (
            {} if not causal else {"add_special_tokens": not self.task.tokenizer.chat_template}
        )
        inputs = self.task.encode([prompt], side="left" if causal else "right", **special)
        listener, task = _Listener(hear), cast(Any, self.task)
        length = inputs["input_ids"].shape[1]
        found = self.net.generate(
            **{k: v.to(self.net.device) for k, v in inputs.items()},
            generation_config=task.within(length) if causal else task.config,
            streamer=listener, stopping_criteria=StoppingCriteriaList([listener.stop]),
        )  # fmt: skip
        begin = inputs["input_ids"].shape[1] if causal else 1
        ids = self.task.until_end(found[0, begin:].tolist())  # type: ignore[attr-defined]
        return self._told([prompt], [ids])[0]

    def _told(self, prompts: Sequence[str], ids: list[list[int]]) -> list[Said]:
        """What the hooks saw, put together for each answer."""
        words = self.task.decode(ids)
        fired: list[dict[int, float]] = [{} for _ in ids]
        queries: list[Tensor] = []
        for layer in self.whose:
            found, owner = self._positions(layer, prompts, ids)
            if layer == -1:
                queries = [found[owner == i].float().cpu() for i in range(len(ids))]
            keys, bias = self.keys[layer]
            if not len(keys):
                continue
            response = (found.float() @ keys.T + bias).cpu()  # (P, n)
            for p, n in (response > 0).nonzero().tolist():
                mine, i = fired[int(owner[p])], int(self.whose[layer][n])
                mine[i] = max(mine.get(i, 0.0), float(response[p, n]))
        return [Said(*one) for one in zip(ids, words, fired, queries, strict=True)]

    def _positions(
        self, layer: int, prompts: Sequence[str], ids: list[list[int]]
    ) -> tuple[Tensor, Tensor]:
        """The queries (P, d) at the answer positions, and whose they are (P,)."""
        seen = self.local.seen[layer]
        if self.task.name == "classify":
            forced = self.task.force(prompts, ids)
            return seen[0][forced.row, forced.column], forced.row
        steps = torch.cat(seen, dim=1)  # (B, T, d): one query a token
        owner = torch.tensor([i for i, one in enumerate(ids) for _ in one])
        step = torch.tensor([t for one in ids for t in range(len(one))])
        return steps[owner, step], owner


class _Listener(BaseStreamer):  # type: ignore[misc]
    """Hears every token; the first call only repeats the prompt."""

    def __init__(self, hear: Callable[[int], bool]) -> None:
        self.hear, self.begun, self.wanted = hear, False, True
        self.stop = _Stop(self)

    def put(self, value: Tensor) -> None:
        if self.begun:
            self.wanted = self.hear(int(value.flatten()[0])) and self.wanted
        self.begun = True

    def end(self) -> None:
        """Nothing to do: the caller has the whole answer."""


class _Stop(StoppingCriteria):  # type: ignore[misc]
    def __init__(self, listener: _Listener) -> None:
        self.listener = listener

    def __call__(self, ids: Tensor, scores: Tensor, **more: Any) -> Tensor:
        return torch.full((len(ids),), not self.listener.wanted, device=ids.device)
