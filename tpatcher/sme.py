"""Sequential Model Editing: fix each mistake as it comes (paper, Sections 3 and 5.1)."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from time import perf_counter
from typing import Any

from tpatcher import files
from tpatcher.editors.base import Editor
from tpatcher.errors import Damaged, NotFixed
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.patches import from_bytes
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons
from tpatcher.peak_memory import watch


@dataclass(frozen=True)
class Step:
    """One mistake, and the model after it was edited: f_t of Eq. 2."""

    index: int  # the example's place in the stream
    text: str
    answer: str
    before: str  # what the model said
    fixed: bool  # f_t(x_t) = y_t
    rephrasings: list[bool]  # the same for each of its rephrasings
    neurons: int  # added by this edit
    growth: float  # all neurons added so far, in % of the model's parameters
    seconds: float
    patch: str | None  # None if the editor found none
    error: str | None = None
    # right now, and right to begin with (for "edits": made so far); only every so many steps
    retained: dict[str, tuple[int, int]] = field(default_factory=dict)
    megabytes: float | None = None  # that the edit took at its peak, where that is counted


@dataclass(frozen=True)
class Scores:
    """The five metrics of the paper (Section 5.1), with T edits made and N mistakes of f_0."""

    SR: float
    GR: float
    ER: float
    TrainR: float
    TestR: float
    E: int
    N: int | None
    growth: float
    seconds_per_edit: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    model: Model,
    editor: Editor,
    stream: Sequence[Example],
    retain: Mapping[str, Sequence[Example] | AnswerCache] | None = None,
    every: int | None = None,
    out: str | Path | None = None,
    given: int = 0,
) -> Iterator[Step]:
    """Edit the model at each mistake of the stream, and yield a Step for it.

    What is retained is measured every so many edits and at the end, from cached answer paths
    where that gives the same. With `out`, steps are kept in that directory: a run that was
    killed goes on after its last line. The first `given` rephrasings are shown to the editor, and
    generality is measured on the others.
    """
    paths = {
        k: v if isinstance(v, AnswerCache) else AnswerCache(model, v)
        for k, v in (retain or {}).items()
    }
    log = Log(Path(out)) if out is not None else None
    past = AnswerCache(model, [])
    right = model.correct(stream)
    size = sum(p.numel() for p in model.net.parameters())
    done: list[Step] = []
    if log is not None:
        done = log.begin({"N": right.count(False), "editor": editor.name, "model": model.name,
                          "fingerprint": model.base.fingerprint, "stream": len(stream),
                          "retain": {k: len(p.examples) for k, p in paths.items()}})  # fmt: skip
        for step in done:
            patch = log.patch(step)
            if patch is not None:
                model.push(patch)
            past.add(stream[step.index], patch)
            yield step
    neurons = sum(step.neurons for step in done)
    held: Step | None = None  # the newest step waits: if no other follows, it is the last one
    begin = done[-1].index + 1 if done else 0
    for index in range(begin, len(stream)):
        example = stream[index]
        before = model.answer([example.text])[0]
        if model.accepts(example, before):
            continue
        if held is not None:
            yield _kept(
                log, held, model, past, paths, measure=every is not None and len(done) % every == 0
            )
        peak, began = watch(model.net.device), perf_counter()
        found, error = None, None
        try:
            shown = example.rephrasings[:given]
            found = editor.edit(model, replace(example, rephrasings=shown, unrelated=()))
            model.push(found)
        except NotFixed as reason:
            error = str(reason)
        seconds, taken = perf_counter() - began, peak()
        if log is not None and found is not None:
            log.save(index, found)
        past.add(example, found)
        added = len(found.keys) if isinstance(found, Neurons) else 0
        neurons += added
        asked = [Example(r, example.answer, also=example.also) for r in example.rephrasings[given:]]
        held = Step(
            index=index, text=example.text, answer=example.answer, before=before,
            fixed=model.correct([example])[0], rephrasings=model.correct(asked), neurons=added,
            growth=100 * neurons * _per_neuron(found) / size, seconds=round(seconds, 4),
            patch=found.id if found else None, error=error,
            megabytes=None if taken is None else round(taken / 1e6, 1),
        )  # fmt: skip
        done.append(held)
    if held is not None:
        yield _kept(log, held, model, past, paths, measure=True)


def _kept(
    log: "Log | None",
    step: Step,
    model: Model,
    past: AnswerCache,
    paths: Mapping[str, AnswerCache],
    measure: bool,
) -> Step:
    """The step with what the model retains, written down if it is to be."""
    if measure:
        retained = {"edits": (sum(past.correct(model)), len(past.examples))}
        retained |= {k: (sum(p.correct(model)), sum(p.base)) for k, p in paths.items()}
        step = replace(step, retained=retained)
    if log is not None:
        log.write(step)
    return step


def _per_neuron(patch: Patch | None) -> int:
    """Parameters of one neuron: key, bias and value."""
    return 2 * patch.keys.shape[1] + 1 if isinstance(patch, Neurons) else 0


def score(steps: Sequence[Step], mistakes: int | None = None) -> Scores:
    """The metrics of one run; ER with one division by T (the printed formula has two)."""
    if not steps:
        return Scores(1.0, 1.0, 1.0, 1.0, 1.0, 0, mistakes, 0.0, 0.0)
    last = steps[-1].retained

    def rate(name: str) -> float:
        now, begin = last.get(name, (0, 0))
        return now / begin if begin else 1.0

    asked = [right for step in steps for right in step.rephrasings]
    return Scores(
        SR=fmean(step.fixed for step in steps),
        GR=fmean(asked) if asked else 1.0,
        ER=rate("edits"),
        TrainR=rate("train"),
        TestR=rate("test"),
        E=len(steps),
        N=mistakes,
        growth=steps[-1].growth,
        seconds_per_edit=fmean(step.seconds for step in steps),
    )


def summary(runs: Sequence[Sequence[Step]]) -> dict[str, tuple[float, float]]:
    """Mean and deviation over folders; SR and GR over all their edits pooled (paper, Table 5)."""
    scores = [score(steps) for steps in runs if steps]
    pooled = [step for steps in runs for step in steps]
    asked = [right for step in pooled for right in step.rephrasings]
    out = {
        "SR": (fmean(step.fixed for step in pooled), 0.0),
        "GR": (fmean(asked) if asked else 1.0, 0.0),
    }
    for name in ("ER", "TrainR", "TestR", "E", "seconds_per_edit"):
        found = [getattr(s, name) for s in scores]
        out[name] = (fmean(found), pstdev(found))
    return out


class Log:
    """The steps of one run on disk: a header, then a line per step, and every patch beside them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "steps.jsonl"
        self.patches = directory / "patches"
        self.patches.mkdir(parents=True, exist_ok=True)

    def begin(self, header: dict[str, Any]) -> list[Step]:
        """Start, or find the steps that an earlier, killed run of the same kind has made."""
        if not self.path.exists():
            files.replace(self.path, (json.dumps(header) + "\n").encode())
            return []
        lines = self.path.read_bytes().split(b"\n")
        whole = b"\n".join(lines[:-1]) + b"\n"
        if lines[-1]:  # half a line: the kill came while it was written
            files.replace(self.path, whole)
        found = json.loads(lines[0])
        if found != header:
            other = [k for k in header if found.get(k) != header[k]]
            raise Damaged(f"{self.path} is of another run: {', '.join(other)} differ; remove it")
        return [_step(json.loads(line)) for line in lines[1:-1]]

    def save(self, index: int, patch: Patch) -> None:
        files.replace(self.patches / f"{index}.safetensors", patch.to_bytes())

    def patch(self, step: Step) -> Patch | None:
        if step.patch is None:
            return None
        return from_bytes((self.patches / f"{step.index}.safetensors").read_bytes())

    def write(self, step: Step) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(asdict(step), ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read(directory: str | Path) -> tuple[dict[str, Any], list[Step]]:
    """The header and the steps of a run."""
    head, *lines = (Path(directory) / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    return json.loads(head), [_step(json.loads(line)) for line in lines]


def _step(row: dict[str, Any]) -> Step:
    retained = {k: (v[0], v[1]) for k, v in row.pop("retained").items()}
    return Step(**row, retained=retained)
