"""How much of the paper's experiments is run: a part that ends soon, or all of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tpatcher.editors import EDITORS
from tpatcher.editors.finetune import FineTune
from tpatcher.editors.tpatcher import TPatcher
from tpatcher.editors.trained.base import Trained
from tpatcher.errors import BadInput, unknown


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
    # what else is set of an editor ("ke"), or of an editor on one dataset ("zsre.ke")
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """What is run, in words."""
        fc, qa = self.edits["fc"], self.edits["qa"]
        each = "all their mistakes" if fc is None else f"{fc} mistakes (question answering: {qa})"
        streams = f"{self.folders} folders with {each}"
        if self.folders > 1:
            fc, qa = self.whole_stream["fc"], self.whole_stream["qa"]
        whole = "all mistakes" if fc is None else f"the first {fc} ({qa}) mistakes"
        one = f"{whole} of the whole edit set as one stream"
        streams = f"{streams}, and {one}" if self.folders > 1 else one
        test = "all of D_test" if self.n_test >= 100_000 else f"{self.n_test:,} of D_test"
        fits = "their settings for small models" if self.quick_fits else "their papers' settings"
        return (
            f"{streams}; D_tr of {self.n_train:,} and {test}; {self.memory_size:,} memory "
            f"examples; fine-tuning at {self.learning_rate:g} with a KL batch of {self.kl_batch}; "
            f"trained editors with {fits}"
            + (f"; further {json.dumps(self.knobs)}" if self.knobs else "")
        )

    def with_streams(
        self,
        folders: int | None = None,
        edits: int | Literal["all"] | None = None,
        whole: int | Literal["all"] | None = None,
    ) -> "Scale":
        """This scale with other streams: how many folders, mistakes per folder, and mistakes of
        the whole edit set as one stream (twice as many as per folder if only those are given).

        With one folder every table is made of the same stream, that of the whole edit set.
        """
        scale = self if folders is None else replace(self, folders=folders)
        if edits == "all":
            every = dict.fromkeys(self.edits)
            scale = replace(scale, edits=every, whole_stream=every, measure_every=10)
        elif edits is not None:
            scale = replace(
                scale,
                edits=dict.fromkeys(self.edits, edits),
                whole_stream=dict.fromkeys(self.whole_stream, 2 * edits),
                measure_every=max(1, min(self.measure_every, edits // 4)),
            )
        if whole is not None:
            stream = None if whole == "all" else whole
            scale = replace(scale, whole_stream=dict.fromkeys(self.whole_stream, stream))
        return scale

    def with_knobs(self, knobs: Mapping[str, Mapping[str, Any]]) -> "Scale":
        """This scale with further settings of editors; `BadInput` names what none of them has."""
        for name, given in knobs.items():
            editor = name.rpartition(".")[2]
            if editor not in EDITORS:
                raise unknown("editor", editor, EDITORS)
            if issubclass(EDITORS[editor], TPatcher):
                raise BadInput("the rows of t-patcher are its settings: it takes no further knobs")
            if not isinstance(given, Mapping):
                raise BadInput(f"the knobs of {name} are an object; found {given!r:.60}")
            known = [f.name for f in fields(EDITORS[editor]) if f.repr]
            for knob in given:
                if knob not in known:
                    raise unknown(f"knob of {editor}", knob, known)
        return replace(self, knobs=knobs)

    def editor_fields(self, editor: str, data: str) -> dict[str, Any]:
        """What this scale sets of an editor on this dataset."""
        kind, found = EDITORS[editor], dict[str, Any]()
        if issubclass(kind, FineTune):
            batch = {"kl_batch": self.kl_batch} if kind.constrained else {}
            found = {"learning_rate": self.learning_rate} | batch
        elif issubclass(kind, Trained) and self.quick_fits:
            found = dict(kind.SMALL)
        return {**found, **self.knobs.get(editor, {}), **self.knobs.get(f"{data}.{editor}", {})}

    def row_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A row's own fields; its KL term, if it has one, is of this scale's batch."""
        solver = fields.get("solver", {})
        if not solver.get("kl"):
            return dict(fields)
        return {**fields, "solver": {**solver, "kl_batch": self.kl_batch}}


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
