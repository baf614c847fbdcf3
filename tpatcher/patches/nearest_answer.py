"""An entry of a cache of corrections: texts near enough to a fixed one are given its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from transformers import PreTrainedModel

from tpatcher.nets.tasks import Task
from tpatcher.patches.base import Patch
from tpatcher.patches.sentence_encoder import embed

ROUNDING = 1e-5  # of a cosine: padding changes an embedding by less


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestAnswer(Patch):
    """One cached correction. The net is not changed: `Model.answer` asks `answers` before it."""

    kind: ClassVar[str] = "nearest"
    answers_itself: ClassVar[bool] = True
    answer: str
    embedding: torch.Tensor  # (d,), of the fixed text, at length 1
    threshold: float  # the cosine from which on a text is given the answer
    encoder: str = ""  # empty: the edited model's own

    @classmethod
    def apply(cls, net: nn.Module, before: Sequence[Patch], after: Sequence[Patch]) -> None:
        """Nothing in the net changes."""

    @classmethod
    def answers(
        cls, net: PreTrainedModel, task: Task, patches: Sequence[Patch], texts: Sequence[str]
    ) -> dict[int, str]:
        """The answers of the nearest fixed texts, by index; texts that are near none are left out.

        `net` is the model without patches. Of corrections that are equally near the newest counts.
        """
        newest_first = [p for p in reversed(patches) if isinstance(p, NearestAnswer)]
        found: dict[int, tuple[float, str]] = {}
        for encoder in dict.fromkeys(p.encoder for p in newest_first):
            group = [p for p in newest_first if p.encoder == encoder]
            asked = embed(net, task, texts, encoder)
            cosine = asked @ torch.stack([p.embedding for p in group]).T
            too_far = cosine < torch.tensor([p.threshold for p in group]) - ROUNDING
            cosine = cosine.masked_fill(too_far, -torch.inf)
            best = cosine.max(-1).values
            nearest = (cosine >= best[:, None] - ROUNDING).int().argmax(-1)  # the first of equals
            for i, (near, k) in enumerate(zip(best.tolist(), nearest.tolist(), strict=True)):
                if near > (found[i][0] if i in found else -torch.inf):
                    found[i] = near, group[k].answer
        return {i: task.canonical(answer) for i, (_, answer) in found.items()}
