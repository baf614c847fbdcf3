"""T-Patcher (Huang et al., Transformer-Patcher: One Mistake Worth One Neuron, ICLR 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from tpatcher.editors.base import Editor
from tpatcher.editors.tpatcher import max_margin as fast
from tpatcher.editors.tpatcher import paper as solver
from tpatcher.editors.tpatcher.kl import kl_loss
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.mistake import Mistake, Past, neurons
from tpatcher.errors import AlreadyRight, BadInput, NotFitted, NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.traces import views
from tpatcher.patches.neurons import Neurons


@dataclass
class TPatcher(Editor):
    """One neuron per mistake in a feed-forward layer, the last by default.

    `preset="fast"` finds it in closed form; `preset="paper"` trains it as the paper does.
    """

    name: ClassVar[str] = "t-patcher"
    preset: Literal["fast", "paper"] = "fast"
    layer: int = -1
    settings: fast.Settings = field(default_factory=fast.Settings)
    schedule: solver.Schedule = field(default_factory=solver.Schedule)
    neurons: int | None = None  # the most per edit; None: 5 in the paper's preset, else no limit
    views: int = 32  # dropout views that the paper's 8 repeats are drawn from
    smoothing: float = 0.1  # of the edit loss when the task is generation
    fixed_memory: bool = False  # leave past edits out of the memory
    kl_patch: bool = False  # the paper's ablation: a KL term in the place of l_m (preset="paper")
    seed: int = 0
    progress: bool = False
    memory: Memory | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.settings, dict):  # as a job that was written down has them
            self.settings = fast.Settings(**self.settings)
        if isinstance(self.schedule, dict):
            self.schedule = solver.Schedule(**self.schedule)

    def fit(self, model: Model, examples: Sequence[str | Example] | Memory) -> Self:
        """Build the memory: of the model's own answers; as the paper does, of the right ones."""
        if isinstance(examples, Memory):
            self.memory = examples
        else:
            own = [e.text if isinstance(e, Example) else e for e in examples]
            items: Sequence[str | Example] = own if self.preset == "fast" else examples
            layer = self._layer(model)
            self.memory = Memory.collect(model, items, layer=layer, progress=self.progress)
        _ = self.memory.factor if self.preset == "fast" else None  # once, not at the first edit
        return self

    def right(self, model: Model, example: Example) -> bool:
        """Told by the positions that `solve` needs anyway; other right answers need a real run."""
        return bool(example.also) and super().right(model, example)

    def solve(self, model: Model, example: Example) -> Neurons:
        if self.memory is None:
            raise NotFitted(
                "this editor has seen no traffic: call fit(model, texts) first, with a few "
                "thousand texts like those the model is used on (40,000 in the paper)"
            )
        mistake = Mistake.find(model, example, self._layer(model))
        if not len(mistake.wrong):
            raise AlreadyRight(f"the model answers {example.text!r} with {example.answer!r}")
        found = self._patch(mistake)
        return self._until_right(mistake, found)

    def _patch(self, mistake: Mistake) -> Neurons:
        assert self.memory is not None
        past = Past.of(mistake.model, mistake.example, mistake.layer)
        if self.preset == "fast":
            return fast.solve(mistake, self.memory, past, self.settings)
        return self._paper(mistake, past)

    def _until_right(self, mistake: Mistake, patch: Neurons) -> Neurons:
        """The patch, if it is right by real generation; any token still wrong is patched too."""
        model = mistake.model
        # a label follows from the tail, by more than rounding; a text has to be really generated
        proved = model.task.name == "classify" and mistake.at.fast and self.preset == "fast"
        made = (t.to(mistake.logits.device) for t in (patch.keys, patch.bias, patch.values))
        if proved and mistake.right_with(*made):
            return patch
        for _ in range(4):
            trial = model.twin()
            trial.push(patch)
            if trial.correct([mistake.example])[0] or self.preset == "paper":
                return patch
            again = Mistake.find(trial, mistake.example, mistake.layer)
            if not len(again.wrong):
                break
            more = self._patch(again)
            patch = neurons(
                mistake,
                torch.cat([patch.keys, more.keys]),
                torch.cat([patch.bias, more.bias]),
                torch.cat([patch.values, more.values]),
                self.name,
                dict(more.report),
            )
        said = trial.answer([mistake.example.text])[0]
        raise NotFixed(
            f"{mistake.example.text!r}: patched {len(patch.keys)} times, the model still says "
            f"{said!r} instead of {mistake.example.answer!r}"
        )

    def _paper(self, mistake: Mistake, past: Past) -> Neurons:
        """Keys, bias and values by Adam on l_e + a·l_a + m·l_m (Section 4.2)."""
        assert self.memory is not None
        began = perf_counter()
        model, at, s = mistake.model, mistake.at, self.schedule
        wrong = mistake.wrong[: self.neurons or 5]
        queries, states = views(
            model, mistake.example.text, mistake.target, self.views, self.seed, mistake.layer
        )
        known = [self.memory.queries[: self.memory.split].float().to(queries.device)]
        if not self.fixed_memory:
            known.append(past.queries.to(queries.device))
        keys, bias, values, steps = solver.train(
            solver.Views(queries, wrong),
            known,
            self.memory.queries[self.memory.split :].float().to(queries.device),
            at.place.act,
            self._edit_loss(mistake, queries, states),
            mistake.right_with,
            kl_loss(mistake, self.memory, past, seed=self.seed) if self.kl_patch else None,
            replace(s, use_lm1=False, use_lm2=False) if self.kl_patch else s,
            self.seed,
        )
        seconds = round(perf_counter() - began, 4)
        report = {"steps": steps, "seconds": seconds}
        return neurons(mistake, keys, bias, values, self.name, report)

    def _edit_loss(self, mistake: Mistake, queries: Tensor, states: Tensor) -> solver.Loss:
        """l_e on some of the views: on their cached states, or by running the model."""
        at, smoothing = mistake.at, self.smoothing if mistake.model.task.name != "classify" else 0.0
        tokens = mistake.tokens
        if at.fast:
            flat = states.flatten(0, 1)
            if len(at.worn[0]):
                pre = queries.flatten(0, 1) @ at.worn[0].T + at.worn[1]
                flat = at.tail.shift(flat, at.place.act(pre) @ at.worn[2])
            shifted = flat.view(states.shape)

            def cached(drawn: Tensor, keys: Tensor, bias: Tensor, values: Tensor) -> Tensor:
                delta = at.place.act(queries[drawn] @ keys.T + bias) @ values
                state = at.tail.shift(shifted[drawn].flatten(0, 1), delta.flatten(0, 1))
                return solver.smoothed(at.tail(state), tokens.repeat(len(drawn)), smoothing)

            return cached

        example, target = mistake.example, mistake.target
        repeated = at.repeated(example.text, target, self.schedule.repeats)

        def run(drawn: Tensor, keys: Tensor, bias: Tensor, values: Tensor) -> Tensor:
            logits = repeated.logits(keys, bias, values)
            return solver.smoothed(logits, tokens.repeat(self.schedule.repeats), smoothing)

        return run

    def _layer(self, model: Model) -> int:
        """The layer counted from the end, so that every patch names it in the same way."""
        if not -model.n_layers <= self.layer < model.n_layers:
            raise BadInput(f"layer {self.layer} asked for, but {model.name} has {model.n_layers}")
        return self.layer % model.n_layers - model.n_layers
