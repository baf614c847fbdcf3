"""My own method, beside the others: BitFit (Ben Zaken et al., ACL 2022), which trains biases only.

An editor is a dataclass whose fields are its settings, with a `solve` that returns a patch and
never changes the model. Metrics, undo, packs and the service then work with it.
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import tpatcher as tp
from tpatcher.editors import Editor
from tpatcher.editors.finetune import tune
from tpatcher.models.training import trainable
from tpatcher.patches.weights import Weights


@dataclass
class BitFit(Editor):
    """Train every bias of the model until the mistake is answered rightly."""

    name: ClassVar[str] = "bitfit"
    learning_rate: float = 1e-3
    steps: int = 500

    def solve(self, model: tp.Model, example: tp.Example) -> Weights:
        names = [name for name, _ in model.net.named_parameters() if name.endswith(".bias")]
        net, biases = trainable(model, names)  # a twin with its own copies of these
        found = tune(model, net, list(biases.values()), example, self.learning_rate, self.steps)
        return Weights(example=example, editor=self.name, certificate=found, values=biases)


def main(name: str = "builtin-fc", mistakes: int = 8) -> None:
    data = tp.data.dataset("builtin-fc")
    for editor in (BitFit(), tp.TPatcher()):
        model = tp.load(name)
        editor.fit(model, [e.text for e in data.train[::20]])
        wrong = [e for e, ok in zip(data.edit, model.correct(data.edit), strict=True) if not ok]
        steps = list(tp.run(model, editor, wrong[: int(mistakes)], {"test": data.test[:300]}))
        scores = tp.score(steps)
        print(f"{editor.name}: SR {scores.SR:.2f}, ER {scores.ER:.2f}, TestR {scores.TestR:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
