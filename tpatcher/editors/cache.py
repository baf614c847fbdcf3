"""A cache of corrections, the plainest rival of a model editor: what was fixed is looked up.

The nearest fixed text gives its answer if a sentence encoder finds it near enough; if not, the
model answers. Nothing is learned and nothing is checked: a negation is as near as a rephrasing.
"""

from dataclasses import dataclass
from typing import ClassVar

from tpatcher.editors.base import Editor
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.nearest_answer import NearestAnswer
from tpatcher.patches.sentence_encoder import embed


@dataclass
class Cache(Editor):
    """A cached answer per mistake, given to every text within a cosine of the fixed one."""

    name: ClassVar[str] = "cache"
    threshold: float = 0.8  # the least cosine of a text that is given a cached answer
    encoder: str = ""  # a directory or hub name; empty: the edited model's own token states

    def __post_init__(self) -> None:
        if not -1 <= self.threshold <= 1:
            raise BadInput(
                f"the threshold is a cosine, from -1 to 1; found {self.threshold!r}: give one near "
                "0.8, higher for fewer cached answers"
            )

    def solve(self, model: Model, example: Example) -> NearestAnswer:
        net = model.unpatched().net
        return NearestAnswer(
            example=example,
            editor=self.name,
            answer=model.task.canonical(example.answer),
            embedding=embed(net, model.task, [example.text], self.encoder)[0],
            threshold=self.threshold,
            encoder=self.encoder,
        )
