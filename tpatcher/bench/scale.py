"""How much of the paper's experiments is run: a part that ends soon, or all of it."""

from dataclasses import dataclass, replace
from typing import Any

from tpatcher.editors import EDITORS


@dataclass(frozen=True)
class Scale:
    """Sizes of the data, and what the baselines are allowed."""

    name: str
    folders: int
    edits: dict[str, int | None]  # mistakes per folder, by task; None: all there are
    whole: dict[str, int | None]  # mistakes of the stream in which there are no folders
    tr: int  # |D_tr|
    test: int  # at most so many of D_test
    memory: int
    memories: tuple[int, ...]  # of Figure 6
    every: int  # retention is measured so often in folder 0, for the curves
    learning_rate: float  # of fine-tuning
    kl_batch: int
    quick_fits: bool  # trained editors with settings for small models

    @property
    def about(self) -> str:
        """What is run, in words."""
        fc, qa = self.edits["fc"], self.edits["qa"]
        each = "all their mistakes" if fc is None else f"{fc} mistakes (question answering: {qa})"
        fc, qa = self.whole["fc"], self.whole["qa"]
        whole = "all mistakes" if fc is None else f"the first {fc} ({qa}) mistakes"
        test = "all of D_test" if self.test >= 100_000 else f"{self.test:,} of D_test"
        fits = "their settings for small models" if self.quick_fits else "their papers' settings"
        return (
            f"{self.folders} folders with {each}, and {whole} of the whole edit set as one stream; "
            f"D_tr of {self.tr:,} and {test}; {self.memory:,} memory examples; fine-tuning at "
            f"{self.learning_rate:g} with a KL batch of {self.kl_batch}; trained editors with "
            f"{fits}"
        )

    def bounded(self, edits: int | None) -> "Scale":
        """The same with so many mistakes per folder, and twice as many where there are none."""
        if edits is None:
            return self
        return replace(self, edits=dict.fromkeys(self.edits, edits),
                       whole=dict.fromkeys(self.whole, 2 * edits),
                       every=max(1, min(self.every, edits // 4)))  # fmt: skip


SMALL = Scale(
    name="small",
    folders=2,
    edits={"fc": 15, "qa": 10},
    whole={"fc": 20, "qa": 15},
    tr=400,
    test=400,
    memory=4_000,
    memories=(500, 1_000, 2_000, 4_000),
    every=2,
    learning_rate=1e-4,
    kl_batch=32,
    quick_fits=True,
)
FULL = Scale(
    name="full",
    folders=20,
    edits={"fc": None, "qa": None},
    whole={"fc": None, "qa": None},
    tr=10_000,
    test=1_000_000,
    memory=40_000,
    memories=(5_000, 10_000, 20_000, 40_000),
    every=10,
    learning_rate=1e-5,
    kl_batch=512,
    quick_fits=False,
)
SCALES = {"small": SMALL, "full": FULL}


def trained(editor: str, quick: bool) -> dict[str, Any]:
    """A trained editor's fields, written out: its paper's, or those for small models."""
    if not quick:
        return {}
    kind: Any = EDITORS[editor]
    small, usual = kind.small(), kind()
    return {k: v for k, v in small.settings().items() if v != usual.settings()[k]}
