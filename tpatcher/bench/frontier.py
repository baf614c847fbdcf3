"""The dial: how far fixes reach against what they leave alone, on a user's own model and texts.

Every point is a whole run: all mistakes are fixed on a twin of the model, once per setting, by
T-Patcher with the neuron crossing at f and by a cache of corrections with threshold τ.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tpatcher import files
from tpatcher.editors import EDITORS, Editor, TPatcher
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.errors import BadInput, TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.nets.reading import Reads

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # f, from the memory (0) to the mistake (1)
THRESHOLDS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # τ, the cosine of the cache
SETTINGS = [(TPatcher.name, f) for f in FRACTIONS] + [("cache", t) for t in THRESHOLDS]
HELD_BACK = 0.1  # of the traffic: it is measured on, and not in the memory
UNCHANGED = 0.998  # the least share of that which a recommended setting keeps


@dataclass(frozen=True)
class Point:
    """What one setting did to the mistakes and to everything else."""

    editor: str
    setting: float  # f of T-Patcher, τ of the cache
    fixed: float  # share of mistakes
    GR: float  # share of rephrasings that are answered rightly
    sisters: float | None  # share of sisters that are answered as before; None: there are none
    traffic: float  # share of held-back texts that are answered as before


class Dial:
    """Mistakes of a model, and what to measure fixes of them on."""

    def __init__(self, model: Model, mistakes: Sequence[Example], traffic: Sequence[str]) -> None:
        wrong = [e for e, ok in zip(mistakes, model.correct(mistakes), strict=True) if not ok]
        if not wrong:
            raise BadInput("the model answers all of these rightly: there is nothing to fix")
        texts = list(dict.fromkeys(traffic))
        Random(0).shuffle(texts)
        held, self.memory_texts = texts[: int(HELD_BACK * len(texts))], texts[len(texts) // 10 :]
        if len(held) < 2:
            raise BadInput(f"the dial needs some hundred texts of traffic; found {len(texts)}")
        self.model, self.mistakes, phrases = model, wrong, Phrases(self.memory_texts)
        said = [
            Example(text, e.answer, also=e.also)
            for e in wrong
            for text in e.rephrasings or phrases.restated(e.text)
        ]
        if not said:
            raise BadInput("give mistakes with rephrasings: none could be made from their words")
        self.rephrasings = AnswerCache(model, said)
        self.sisters = self._as_now([s for e in wrong for s in _sisters(phrases, e)])
        self.traffic = self._as_now(held)
        told = repr((model.base.fingerprint, wrong, texts)).encode(errors="surrogatepass")
        self.digest = hashlib.sha256(told).hexdigest()  # of all that points depend on
        self._collected: Memory | None = None

    def points(
        self, solver: MaxMargin, encoder: str = "", kept: Path | None = None
    ) -> Iterator[Point]:
        """The points of T-Patcher, then those of the cache.

        Each is written to the file `kept`, and what is there of a run that was stopped is not
        measured again.
        """
        settings = {**solver.to_json(), "version": solver.version, "encoder": encoder}
        about = {"mistakes": self.digest, "settings": settings}
        points = _read(kept, about)
        for name, setting in SETTINGS:
            point = next((p for p in points if (p.editor, p.setting) == (name, setting)), None)
            if point is None:
                editor = self._editor(name, setting, solver, encoder)
                point = self._point(editor, setting)
                points.append(point)
                if kept is not None:
                    rows = [asdict(p) for p in points]
                    files.write_atomic(kept, json.dumps({"about": about, "points": rows}).encode())
            yield point

    def _editor(self, name: str, setting: float, solver: MaxMargin, encoder: str) -> Editor:
        if name == TPatcher.name:
            memory = self._memory(solver.reads)
            return TPatcher(replace(solver, crossing=setting)).fit(self.model, memory)
        return EDITORS[name](threshold=setting, encoder=encoder)  # type: ignore[call-arg]

    def _memory(self, reads: Reads) -> Memory:
        if self._collected is None or self._collected.reads != reads:
            texts = self.memory_texts
            self._collected = Memory.collect(self.model, texts, reads=reads, progress=True)
        return self._collected

    def _point(self, editor: Editor, setting: float) -> Point:
        shown = [replace(e, rephrasings=(), unrelated=()) for e in self.mistakes]
        edited, fixed = self.model.twin(), 0
        for result in editor.edit_all(self.model, shown, supersede=True):
            if not isinstance(result, TPatcherError):
                edited.push(result)
                fixed += 1
        kept = [_share(c.correct(edited)) for c in (self.rephrasings, self.sisters, self.traffic)]
        return Point(editor.name, setting, fixed / len(shown), kept[0] or 0, kept[1], kept[2] or 0)

    def _as_now(self, texts: Sequence[str]) -> AnswerCache:
        """Texts whose right answer is what the model says now."""
        asked = list(dict.fromkeys(texts))
        said = self.model.answer(asked) if asked else []
        return AnswerCache(self.model, [Example(t, a) for t, a in zip(asked, said, strict=True)])


def _read(kept: Path | None, about: dict[str, Any]) -> list[Point]:
    """The points that a file holds, if they are of the same run."""
    if kept is None or not kept.is_file():
        return []
    found = json.loads(kept.read_bytes())
    same = found["about"] == json.loads(json.dumps(about))
    return [Point(**row) for row in found["points"]] if same else []


def recommended(points: Sequence[Point]) -> Point:
    """The setting of T-Patcher that reaches and keeps most, of those that keep the traffic."""
    ours = [p for p in points if p.editor == TPatcher.name]
    safe = [p for p in ours if p.traffic >= UNCHANGED]
    most = max(p.traffic for p in ours)
    return max(safe or [p for p in ours if p.traffic == most], key=lambda p: p.GR + _kept(p))


def draw(points: Sequence[Point], path: Path) -> None:
    """GR against what is kept, a line per editor, each point with its setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    has_sisters = points[0].sisters is not None
    best = recommended(points)
    for name, symbol in ((TPatcher.name, "f"), ("cache", "τ")):
        line = [p for p in points if p.editor == name]
        kept = [_kept(p) for p in line]
        axes.plot(kept, [p.GR for p in line], marker="o", label=f"{name}, {symbol}")
        for x, p in zip(kept, line, strict=True):
            offset: Any = {"textcoords": "offset points", "xytext": (5, 4), "fontsize": 8}
            axes.annotate(f"{p.setting:g}", (x, p.GR), **offset)
    ring: Any = {"markersize": 14, "fillstyle": "none", "color": "black", "label": "recommended"}
    axes.plot([_kept(best)], [best.GR], "o", **ring)
    axes.set(
        xlabel="sisters kept" if has_sisters else "traffic kept", ylabel="rephrasings right (GR)"
    )
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def to_json(points: Sequence[Point]) -> dict[str, Any]:
    """All points and the recommended setting, as JSON can hold them."""
    return {"points": [asdict(p) for p in points], "recommended": recommended(points).setting}


def _sisters(phrases: Phrases, example: Example) -> list[str]:
    """What else may be asked of the example's subject: given ones, or those in others' words."""
    given = [e.text for e in example.unrelated if e.kind == "sisters"]
    return given or phrases.asked_otherwise(example.text, 4)


def _kept(point: Point) -> float:
    """The share of sisters kept, of the traffic where there are no sisters."""
    return point.traffic if point.sisters is None else point.sisters


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None
