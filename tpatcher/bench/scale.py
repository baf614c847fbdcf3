"""How much of the paper's experiments is run: a part that ends soon, or all of it."""

from dataclasses import dataclass, replace
from typing import Any

from tpatcher.editors import EDITORS
from tpatcher.editors.finetune import FineTune
from tpatcher.editors.trained.base import Trained


@dataclass(frozen=True)
class Scale:
    """Sizes of the data, and what the baselines are allowed."""

    name: str
    folders: int
    edits: dict[str, int | None]  # mistakes per folder, by task; None: all there are
    whole_stream: dict[str, int | None]  # mistakes of the stream in which there are no folders
    n_train: int  # |D_tr|
    n_test: int  # at most so many of D_test
    memory_size: int
    memory_sizes: tuple[int, ...]  # of Figure 6
    measure_every: int  # edits between two points of a curve
    learning_rate: float  # of fine-tuning
    kl_batch: int
    quick_fits: bool  # trained editors with settings for small models
    demo: bool = False  # streams of mistakes only

    @property
    def about(self) -> str:
        """What is run, in words."""
        fc, qa = self.edits["fc"], self.edits["qa"]
        each = "all their mistakes" if fc is None else f"{fc} mistakes (question answering: {qa})"
        fc, qa = self.whole_stream["fc"], self.whole_stream["qa"]
        whole = "all mistakes" if fc is None else f"the first {fc} ({qa}) mistakes"
        test = "all of D_test" if self.n_test >= 100_000 else f"{self.n_test:,} of D_test"
        fits = "their settings for small models" if self.quick_fits else "their papers' settings"
        return (
            f"{self.folders} folders with {each}, and {whole} of the whole edit set as one stream; "
            f"D_tr of {self.n_train:,} and {test}; {self.memory_size:,} memory examples; "
            f"fine-tuning at {self.learning_rate:g} with a KL batch of {self.kl_batch}; trained "
            f"editors with {fits}"
        )

    def with_edits(self, edits: int | None) -> "Scale":
        """This scale with `edits` mistakes per folder and twice as many in the single stream."""
        if edits is None:
            return self
        return replace(
            self,
            edits=dict.fromkeys(self.edits, edits),
            whole_stream=dict.fromkeys(self.whole_stream, 2 * edits),
            measure_every=max(1, min(self.measure_every, edits // 4)),
        )

    def editor_fields(self, editor: str) -> dict[str, Any]:
        """What this scale sets of an editor."""
        kind = EDITORS[editor]
        if issubclass(kind, FineTune):
            batch = {"kl_batch": self.kl_batch} if kind.constrained else {}
            return {"learning_rate": self.learning_rate} | batch
        return dict(kind.SMALL) if issubclass(kind, Trained) and self.quick_fits else {}


SMALL = Scale(
    name="small",
    folders=2,
    edits={"fc": 15, "qa": 10},
    whole_stream={"fc": 20, "qa": 15},
    n_train=400,
    n_test=400,
    memory_size=4_000,
    memory_sizes=(500, 1_000, 2_000, 4_000),
    measure_every=2,
    learning_rate=1e-4,
    kl_batch=32,
    quick_fits=True,
)
FULL = Scale(
    name="full",
    folders=20,
    edits={"fc": None, "qa": None},
    whole_stream={"fc": None, "qa": None},
    n_train=10_000,
    n_test=1_000_000,
    memory_size=40_000,
    memory_sizes=(5_000, 10_000, 20_000, 40_000),
    measure_every=10,
    learning_rate=1e-5,
    kl_batch=512,
    quick_fits=False,
)
SCALES = {"small": SMALL, "full": FULL}
