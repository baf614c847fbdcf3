"""A new base out of a model and all its fixes: the paper's advice for a chain that has grown long.

The base is fine-tuned on the fixes, with replay of ordinary texts as they are answered now, and
what comes out is checked as it will be loaded. It appears as a whole, or not at all.
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
from tpatcher.errors import BadInput, NotFitted, Refused
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.models.training import cross_entropy, descend, kl, logits
from tpatcher.patches.weights import matrices

Lesson = tuple[str, list[int]]  # a text, and the label or tokens to say


@dataclass(frozen=True)
class Recipe:
    """How the base is trained, and what must hold of it afterwards."""

    retention: float = 0.95  # of held-out answers that must stay as they are
    flips: int = 0  # canaries that may become wrong
    steps: int = 2000  # at most; it ends when the fixes hold and the replay is kept
    every: int = 25  # steps between two looks at that
    cooling: float = 0.6  # of the learning rate at each look, once all fixes hold
    learning_rate: float = 3e-4
    fixes: int = 16  # in a batch
    replay: int = 32  # in a batch
    anchor: float = 10.0  # weight of the replay's KL: what is not fixed should not even drift
    clip: float = 1.0
    held_out: int = 500  # texts at most, and a fifth of them
    seed: int = 0


@dataclass(frozen=True)
class Report:
    """What was found on the new base."""

    fixes: int
    lost: list[str]  # texts of fixes, or of their rephrasings, that hold now and would not
    canaries: int
    flipped: list[str]  # canaries that are right now and would not be
    held_out: int
    kept: float  # share of held-out answers that stay as they are
    steps: int

    def reasons(self, recipe: Recipe) -> list[str]:
        """Why it must not take the model's place; none: it may."""
        out = []
        if self.lost:
            out.append(f"{len(self.lost)} of the fixes would be lost, such as {self.lost[0]!r}")
        if len(self.flipped) > recipe.flips:
            out.append(
                f"{len(self.flipped)} of {self.canaries} canaries would become wrong (allowed: "
                f"{recipe.flips}), such as {self.flipped[0]!r}"
            )
        if self.kept < recipe.retention:
            out.append(
                f"{self.kept:.1%} of {self.held_out} held-out answers would stay as they are "
                f"(asked for: {recipe.retention:.1%}); give more texts, or ask for less"
            )
        return out


def consolidate(
    model: Model,
    texts: Sequence[str],
    directory: str | Path,
    *,
    taught: Sequence[Example] = (),
    canaries: Sequence[Example] = (),
    recipe: Recipe | None = None,
    progress: bool = False,
) -> tuple[Model, Report]:
    """Write a base that needs none of the model's patches; `Refused` if a check fails.

    `texts` is ordinary traffic; `taught` are fixes that the base itself has learned before.
    The model is not touched, and its patches stay valid on the base that they were made for.
    """
    recipe = recipe or Recipe()
    fixes = learned(model, taught)
    asked = [e.text for e in fixes] + [t for e in fixes for t in e.rephrasings]
    known = {t.strip() for t in asked}
    ordinary = [t for t in dict.fromkeys(texts) if t.strip() not in known]
    if len(ordinary) < 10:
        raise NotFitted(f"{len(ordinary)} ordinary texts are too few to keep a model as it is")
    random.Random(recipe.seed).shuffle(ordinary)
    cut = min(recipe.held_out, len(ordinary) // 5)
    held, replayed = ordinary[:cut], ordinary[cut:]
    with files.fresh(directory) as made:
        net, steps = tune(model, lessons(model, fixes), replayed, recipe, progress)
        net.save_pretrained(made)
        model.tokenizer.save_pretrained(made)
        new = load(made, task=model.task.name, device=str(model.net.device))
        report = check(model, new, fixes, canaries, held, steps)
        if reasons := report.reasons(recipe):
            raise Refused("the new base is not good enough: " + "; ".join(reasons), report)
    return Model(new.net, new.tokenizer, model.task.name, name=str(directory)), report


def learned(model: Model, taught: Sequence[Example] = ()) -> list[Example]:
    """The fixes that the model wears or was taught; of those for one text, the newest."""
    if nameless := [p.id for p in model.patches if p.example is None]:
        raise BadInput(
            f"patch {nameless[0]} has no text (a pack that was saved without): what it fixes "
            "cannot be taught to a base"
        )
    worn = [p.example for p in model.patches if p.example]
    newest = {e.text.strip(): e for e in (*taught, *worn)}
    if not worn:
        raise BadInput("there is no fix to consolidate")
    return list(newest.values())


def lessons(model: Model, fixes: Sequence[Example]) -> list[Lesson]:
    """The fixes as they are said, and those rephrasings that the model has right."""
    pairs = [(e.text, e.answer) for e in fixes]
    also = [Example(t, e.answer, e.also) for e in fixes for t in e.rephrasings]
    right = model.correct(also)
    pairs += [(e.text, e.answer) for e, ok in zip(also, right, strict=True) if ok]
    return [(text, model.task.target(text, answer)) for text, answer in pairs]


def tune(
    model: Model, fixes: list[Lesson], texts: Sequence[str], recipe: Recipe, progress: bool
) -> tuple[PreTrainedModel, int]:
    """A copy of the base, trained until it says the fixes and the replay as the model does.

    It is float32 and shares no tensor with the model while it is trained.
    """
    bare = model.unpatched().net
    net: PreTrainedModel = deepcopy(bare).float().eval()
    adam = torch.optim.AdamW(
        list(matrices(net).values()), lr=recipe.learning_rate, weight_decay=0.0
    )
    draw = random.Random(recipe.seed)
    replay = list(zip(texts, said(model, model.net, texts), strict=True))
    sample = draw.sample(replay, min(len(replay), 300))
    enough = (1 + recipe.retention) / 2  # beyond the bar, because held-out texts fare worse
    cooled = 1.0
    with Progress(disable=not progress, transient=True) as bar:
        task = bar.add_task("teaching", total=recipe.steps)
        for step in range(1, recipe.steps + 1):
            force = model.task.force
            mine = force(*unzip(draw.sample(fixes, min(recipe.fixes, len(fixes)))))
            others = force(*unzip(draw.sample(replay, min(recipe.replay, len(replay)))))
            with torch.no_grad():
                before = logits(model, model.net, others)
            loss = cross_entropy(logits(model, net, mine), mine)
            loss = loss + recipe.anchor * kl(before, logits(model, net, others))
            descend(loss, adam, recipe.clip)
            bar.advance(task)
            if step % recipe.every == 0:
                hold, kept = share(model, net, fixes), share(model, net, sample)
                bar.update(task, description=f"{hold:.0%} of fixes hold, {kept:.1%} is kept")
                if hold == 1 and (kept >= enough or cooled < 0.05):
                    break
                if hold == 1:  # what is left is to settle, in ever smaller steps
                    cooled *= recipe.cooling
                    adam.param_groups[0]["lr"] = cooled * recipe.learning_rate
    return net.to(bare.dtype), step


@torch.inference_mode()
def said(model: Model, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
    """What a net says, really run, in the form of the task's targets."""
    parts = (texts[start : start + 32] for start in range(0, len(texts), 32))
    return [one for part in parts for one in model.task.predict(net, part)]


def share(model: Model, net: PreTrainedModel, wanted: Sequence[Lesson]) -> float:
    """How many of the lessons a net says, really run."""
    texts, targets = unzip(wanted)
    found = said(model, net, texts)
    return sum(a == b for a, b in zip(found, targets, strict=True)) / len(wanted)


def unzip(pairs: Sequence[Lesson]) -> tuple[list[str], list[list[int]]]:
    """Texts, and their targets."""
    return [text for text, _ in pairs], [target for _, target in pairs]


def check(
    model: Model,
    new: Model,
    fixes: Sequence[Example],
    canaries: Sequence[Example],
    held: Sequence[str],
    steps: int,
) -> Report:
    """Fixes, canaries and held-out texts on both, really run."""
    also = [Example(t, e.answer, e.also) for e in fixes for t in e.rephrasings]
    same = [a == b for a, b in zip(model.answer(held), new.answer(held), strict=True)]
    return Report(
        fixes=len(fixes),
        lost=broken(model, new, [*fixes, *also]),
        canaries=len(canaries),
        flipped=broken(model, new, canaries),
        held_out=len(held),
        kept=sum(same) / len(same),
        steps=steps,
    )


def broken(before: Model, after: Model, examples: Sequence[Example]) -> list[str]:
    """The texts of those that one model has right and the other has not."""
    pairs: Any = zip(examples, before.correct(examples), after.correct(examples), strict=True)
    return [e.text for e, was, now in pairs if was and not now]
