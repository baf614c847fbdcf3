"""A new base model that has learned the fixes of an old one: the paper's advice for many fixes.

The base is fine-tuned on the fixes and on ordinary texts as the model answers them now. The new
base is checked as it will be loaded, and appears as a whole or not at all. A run that was stopped
goes on where it was, if it is begun again with the same model, fixes and texts.
"""

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from transformers import PreTrainedModel

from tpatcher import files
from tpatcher.checkpoints.unfinished import Unfinished
from tpatcher.errors import BadInput, NotFitted, Refused
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, descend, kl, logits, predict
from tpatcher.patches.weights import matrices

Lesson = tuple[str, list[int]]  # a text, and the label or tokens to say


@dataclass(frozen=True)
class Settings:
    """How the base is trained, and what the new base must fulfil."""

    retention: float = 0.95  # of held-out answers that must stay as they are
    max_flips: int = 0  # canaries that may become wrong
    steps: int = 2000  # at most; it ends when the fixes hold and the replay is kept
    check_every: int = 25  # steps between two checks of that
    cooling: float = 0.6  # factor of the learning rate at each check, once all fixes hold
    learning_rate: float = 3e-4
    fixes: int = 16  # in a batch
    replay: int = 32  # in a batch
    anchor: float = 10.0  # weight of the replay's KL: what is not fixed should not even drift
    clip: float = 1.0
    held_out: int = 500  # texts at most, and a fifth of them
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """How the new base does."""

    fixes: int
    lost: list[str]  # texts of fixes, or of their rephrasings, that hold now and would not
    canaries: int
    flipped: list[str]  # canaries that are right now and would not be
    held_out: int
    kept: float  # share of held-out answers that stay as they are
    steps: int

    def reasons(self, settings: Settings) -> list[str]:
        """Why the new base must not replace the model; empty if it may."""
        out = []
        if self.lost:
            out.append(f"{len(self.lost)} of the fixes would be lost, such as {self.lost[0]!r}")
        if len(self.flipped) > settings.max_flips:
            out.append(
                f"{len(self.flipped)} of {self.canaries} canaries would become wrong (allowed: "
                f"{settings.max_flips}), such as {self.flipped[0]!r}"
            )
        if self.kept < settings.retention:
            out.append(
                f"{self.kept:.1%} of {self.held_out} held-out answers would stay as they are "
                f"(asked for: {settings.retention:.1%}); give more texts, or ask for less"
            )
        return out


def consolidate(
    model: Model,
    texts: Sequence[str],
    directory: str | Path,
    *,
    learned: Sequence[Example] = (),
    canaries: Sequence[Example] = (),
    settings: Settings | None = None,
    progress: bool = False,
) -> tuple[Model, Outcome]:
    """Write a base that needs none of the model's patches; `Refused` if a check fails.

    `texts` is ordinary traffic; `learned` are fixes that the base learned at an earlier time.
    The model is not touched, and its patches stay valid on the base that they were made for.
    """
    settings = settings or Settings()
    fixes = fixes_to_teach(model, learned)
    also = [Example(t, e.answer, e.also) for e in fixes for t in e.rephrasings]
    right = [e for e, ok in zip(also, model.correct(also), strict=True) if ok]
    lessons = [(e.text, model.task.target(e.text, e.answer)) for e in (*fixes, *right)]
    known = {e.text.strip() for e in (*fixes, *also)}
    ordinary = [t for t in dict.fromkeys(texts) if t.strip() not in known]
    if len(ordinary) < 10:
        raise NotFitted(f"{len(ordinary)} ordinary texts are too few to keep a model as it is")
    random.Random(settings.seed).shuffle(ordinary)
    cut = min(settings.held_out, len(ordinary) // 5)
    held, replayed = ordinary[:cut], ordinary[cut:]
    run = (model.base.fingerprint, [p.id for p in model.patches], lessons, replayed, settings)
    unfinished = Unfinished(Path(directory), run)
    with files.new_directory(directory) as made:
        net, steps = _tune(model, lessons, replayed, settings, progress, unfinished)
        net.save_pretrained(made)
        model.tokenizer.save_pretrained(made)
        new = load(made, task=model.task.name, device=str(model.net.device))
        same = [a == b for a, b in zip(model.answer(held), new.answer(held), strict=True)]
        outcome = Outcome(
            fixes=len(fixes),
            lost=_broken(model, new, [*fixes, *also]),
            canaries=len(canaries),
            flipped=_broken(model, new, canaries),
            held_out=len(held),
            kept=sum(same) / len(same),
            steps=steps,
        )
        unfinished.remove()
        if reasons := outcome.reasons(settings):
            raise Refused("the new base is not good enough: " + "; ".join(reasons), outcome)
    return Model(new.net, new.tokenizer, model.task.name, name=str(directory)), outcome


def fixes_to_teach(model: Model, learned: Sequence[Example] = ()) -> list[Example]:
    """The fixes of the model's patches and those learned before; for each text, the newest."""
    if nameless := [p.id for p in model.patches if p.example is None]:
        raise BadInput(
            f"patch {nameless[0]} has no text (a pack that was saved without): what it fixes "
            "cannot be taught to a base"
        )
    live = [p.example for p in model.patches if p.example]
    newest = {e.text.strip(): e for e in (*learned, *live)}
    if not live:
        raise BadInput("there is no fix to consolidate")
    return list(newest.values())


def _tune(
    model: Model,
    fixes: list[Lesson],
    texts: Sequence[str],
    settings: Settings,
    progress: bool,
    unfinished: Unfinished,
) -> tuple[PreTrainedModel, int]:
    """A copy of the base, trained until it answers fixes and replay as the model does; steps made.

    While it is trained it is float32 and shares no tensor with the model.
    """
    initial = model.unpatched().net
    net: PreTrainedModel = deepcopy(initial).float().eval()
    trained = matrices(net)
    adam = torch.optim.AdamW(trained.values(), lr=settings.learning_rate, weight_decay=0.0)
    draw = random.Random(settings.seed)
    replay = list(zip(texts, predict(model, model.net, texts), strict=True))
    sample = draw.sample(replay, min(len(replay), 300))
    enough = (1 + settings.retention) / 2  # beyond the bar, because held-out texts fare worse
    made, cooled = unfinished.load(trained, adam)
    adam.param_groups[0]["lr"] = cooled * settings.learning_rate
    with Progress(disable=not progress, transient=True) as bar:
        task = bar.add_task("teaching", total=settings.steps, completed=made)
        for step in range(1, settings.steps + 1):
            drawn = draw.sample(fixes, min(settings.fixes, len(fixes)))
            other = draw.sample(replay, min(settings.replay, len(replay)))
            if step <= made:  # before a stop
                continue
            mine, others = (model.task.force(*zip(*part, strict=True)) for part in (drawn, other))
            with torch.no_grad():
                before = logits(model, model.net, others)
            loss = cross_entropy(logits(model, net, mine), mine)
            loss = loss + settings.anchor * kl(before, logits(model, net, others))
            descend(loss, adam, settings.clip)
            bar.advance(task)
            if step % settings.check_every == 0:
                hold, kept = _agreement(model, net, fixes), _agreement(model, net, sample)
                bar.update(task, description=f"{hold:.0%} of fixes hold, {kept:.1%} is kept")
                if hold == 1 and (kept >= enough or cooled < 0.05):
                    break
                if hold == 1:  # what is left is to settle, in ever smaller steps
                    cooled *= settings.cooling
                    adam.param_groups[0]["lr"] = cooled * settings.learning_rate
                unfinished.save(trained, adam, step, cooled)
    return net.to(initial.dtype), step


def _agreement(model: Model, net: PreTrainedModel, wanted: Sequence[Lesson]) -> float:
    """The share of lessons that the net answers as wanted."""
    found = predict(model, net, [text for text, _ in wanted])
    return sum(a == b for a, (_, b) in zip(found, wanted, strict=True)) / len(wanted)


def _broken(before: Model, after: Model, examples: Sequence[Example]) -> list[str]:
    """The texts of the examples that are right before and wrong after."""
    pairs: Any = zip(examples, before.correct(examples), after.correct(examples), strict=True)
    return [e.text for e, was, now in pairs if was and not now]
