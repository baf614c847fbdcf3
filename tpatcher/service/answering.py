"""Answering with a patched model, and telling which of its patches fired in that very run."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from tpatcher.errors import BadInput
from tpatcher.models.model import Model
from tpatcher.nets import ffn, reading
from tpatcher.nets.rows import Rows
from tpatcher.nets.twin import twin
from tpatcher.patches.neurons import Neurons


@dataclass(frozen=True)
class Reply:
    """One answer, and what happened at its answer positions."""

    ids: list[int]  # the label, or the tokens
    text: str
    fired: dict[int, float]  # by index in the model's patches: the largest pre-activation
    queries: Tensor  # (P, d), of the last layer


class TracedModel:
    """A twin of a model that any number of threads may ask at once."""

    def __init__(self, model: Model) -> None:
        if any(patch.answers_itself for patch in model.patches):
            raise BadInput("edits that are looked up (SERA) are not in the net: cannot serve them")
        self._task = model.task.for_prompts()
        self._net: Any = twin(model.net)
        self._local = threading.local()  # the batch size, and the queries that the hooks saw
        self._reader = reading.install(self._net)  # fixes may read the whole text
        neurons = [(i, p) for i, p in enumerate(model.patches) if isinstance(p, Neurons)]
        self._patch_of: dict[int, Tensor] = {}  # by layer: the index of each neuron's patch
        self._rows: dict[int, Rows] = {}  # the neurons of each layer
        for layer in {-1, *(p.layer for _, p in neurons)}:
            owners = [i for i, p in neurons if p.layer == layer for _ in p.bias]
            self._patch_of[layer] = torch.tensor(owners, dtype=torch.long)
            self._rows[layer] = model.rows(layer)
            first = self._net.get_submodule(ffn.find(model.net, layer).first)
            first.register_forward_pre_hook(self._record(layer), with_kwargs=True)

    @torch.inference_mode()
    def answer(self, prompts: Sequence[str]) -> list[Reply]:
        """Answer one batch of prompts by running the net."""
        self._local.batch, self._local.seen = len(prompts), {}
        return self._replies(prompts, self._task.predict(self._net, prompts))

    @torch.inference_mode()
    def stream(
        self, prompt: str, streamer: BaseStreamer, should_stop: Callable[[int], bool]
    ) -> Reply:
        """Answer one prompt, token by token into `streamer`, until `should_stop(tokens so far)`."""
        self._local.batch, self._local.seen = 1, {}
        criteria = StoppingCriteriaList([_StopWhen(should_stop)])
        generate = partial(self._net.generate, streamer=streamer, stopping_criteria=criteria)
        # all that `predict` needs of a net that generates
        net = cast(Any, SimpleNamespace(device=self._net.device, generate=generate))
        return self._replies([prompt], self._task.predict(net, [prompt]))[0]

    def _record(self, layer: int) -> Any:
        """A hook that keeps the queries of this thread's run."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            query = args[0] if args else next(iter(kwargs.values()))
            if layer == -1:
                query = self._reader.beside(query)
            query = query.reshape(self._local.batch, -1, query.shape[-1])  # OPT flattens
            classify = not self._task.generates
            self._local.seen.setdefault(layer, []).append(query if classify else query[:, -1:])

        return hook

    def _replies(self, prompts: Sequence[str], ids: list[list[int]]) -> list[Reply]:
        """Put together what the hooks saw for each answer."""
        texts = self._task.decode(ids)
        fired: list[dict[int, float]] = [{} for _ in ids]
        queries: list[Tensor] = []
        for layer in self._patch_of:
            seen, owner = self._positions(layer, prompts, ids)
            if layer == -1:
                queries = [seen[owner == i].float().cpu() for i in range(len(ids))]
            rows = self._rows[layer]
            if not len(rows):
                continue
            response = rows.response(seen.float()).cpu()  # (P, n)
            for p, n in (response > 0).nonzero().tolist():
                mine, i = fired[int(owner[p])], int(self._patch_of[layer][n])
                mine[i] = max(mine.get(i, 0.0), float(response[p, n]))
        return [Reply(*parts) for parts in zip(ids, texts, fired, queries, strict=True)]

    def _positions(
        self, layer: int, prompts: Sequence[str], ids: list[list[int]]
    ) -> tuple[Tensor, Tensor]:
        """The queries (P, d) at the answer positions, and the answer that each belongs to (P,)."""
        seen = self._local.seen[layer]
        if not self._task.generates:
            forced = self._task.force(prompts, ids)
            return seen[0][forced.row, forced.column], forced.row
        steps = torch.cat(seen, dim=1)  # (B, T, d): one query a token
        owner = torch.tensor([i for i, tokens in enumerate(ids) for _ in tokens])
        step = torch.tensor([t for tokens in ids for t in range(len(tokens))])
        return steps[owner, step], owner


class _StopWhen(StoppingCriteria):  # type: ignore[misc]
    """Ends generation when a function of the number of tokens says so."""

    def __init__(self, should_stop: Callable[[int], bool]) -> None:
        self.should_stop, self.tokens = should_stop, 0

    def __call__(self, ids: Tensor, scores: Tensor, **more: Any) -> Tensor:
        self.tokens += 1  # asked once after each token
        return torch.full((len(ids),), self.should_stop(self.tokens), device=ids.device)
