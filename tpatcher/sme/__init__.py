"""Do I know the order of mistakes? Sequential Model Editing: each is fixed as it comes.

The paper defines it in Section 3 and its metrics in Section 5.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from time import perf_counter

from tpatcher.editors.base import Editor
from tpatcher.errors import NotFitted, TPatcherError
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons
from tpatcher.patches.weights import Weights, newest_only
from tpatcher.peak_memory import watch
from tpatcher.probes import Probes
from tpatcher.sme.log import Log, Step, read

__all__ = ["PROBES", "Log", "Scores", "Step", "read", "run", "score", "summary"]


@dataclass(frozen=True)
class Scores:
    """The five metrics of the paper (Section 5.1), with T edits made and N mistakes of f_0.

    What nothing was asked for is 1: GR without a rephrasing, TrainR and TestR without an example.
    Beside them stand the shares of probes that are kept; None where there are no such probes.
    """

    SR: float
    GR: float
    ER: float
    TrainR: float
    TestR: float
    E: int
    N: int | None
    growth: float
    seconds_per_edit: float
    Sisters: float | None = None
    Neighbours: float | None = None
    Negations: float | None = None
    YesNo: float | None = None


PROBES = ("Sisters", "Neighbours", "Negations", "YesNo")
AHEAD = 16  # examples of a stream that are answered together


def run(
    model: Model,
    editor: Editor,
    stream: Sequence[Example],
    retain: Mapping[str, Sequence[Example] | AnswerCache] | None = None,
    every: int | None = None,
    out: str | Path | None = None,
    shown_rephrasings: int = 0,
    mistakes: int | None = None,
    checkpoint_every: int = 20,
    remember: bool = False,
) -> Iterator[Step]:
    """Edit the model at each mistake of the stream, and yield a Step for each.

    Retention is measured every `every` edits and after the last one, from cached answers where
    that gives the same result. With `out`, the steps are kept in that directory, and a run that
    was killed goes on after its last line. The editor sees the first `shown_rephrasings` of each
    example; generality is measured on the others. It never sees what is unrelated to an example:
    those are probes, as the negation of a claim is one. `mistakes` is how many examples of the
    stream the unedited model has wrong: the log holds it, and it is counted if it is not given.

    A text that comes again with another answer is edited again (Eq. 1). What keeps one example
    from being edited is the error of its step; the stream goes on. Of patches that hold weights,
    the model keeps the values of the newest alone, and `out` those of every `checkpoint_every`-th
    too: older patches can no longer be taken off the model one by one.

    With `remember`, what the model had right when its turn came is memory for the edits after it,
    as the traffic of a deployed model is of which nobody complains.
    """
    recorder = Recorder(model, editor, stream, retain or {}, every)
    known, edited = 0, set[int]()  # how many examples are remembered, but for the edited ones
    if out is not None:
        steps = recorder.resume(Log(Path(out), checkpoint_every), mistakes)
        edited = {step.index for step in steps}
        yield from steps
    to_fix = _mistakes(model, stream, recorder.next_index)
    mistake = next(to_fix, None)
    while mistake is not None:
        edited.add(mistake[0])
        seen = mistake[0] // AHEAD * AHEAD  # the same at every mistake when a run is resumed
        if remember and seen > known:
            right = [stream[i].text for i in range(known, seen) if i not in edited]
            editor, known = editor.remember(model, right), seen
        step, patch = _edit(model, editor, *mistake, shown_rephrasings)
        mistake = next(to_fix, None)  # of the model as it is now: the last step measures all
        yield recorder.record(step, patch, last=mistake is None)


class Recorder:
    """What is measured after each edit, and written down: retention, probes, growth."""

    def __init__(
        self,
        model: Model,
        editor: Editor,
        stream: Sequence[Example],
        retain: Mapping[str, Sequence[Example] | AnswerCache],
        every: int | None,
    ) -> None:
        self.model, self.editor, self.stream, self.every = model, editor, stream, every
        self.retained = {
            name: given if isinstance(given, AnswerCache) else AnswerCache(model, given)
            for name, given in retain.items()
        }
        self.past = AnswerCache(model, [])  # the examples that were edited
        self.probes = Probes(model)
        self.size = sum(p.numel() for p in model.net.parameters())
        self.added = self.next_index = 0  # parameters of all neurons; where the stream goes on
        self.log: Log | None = None

    def resume(self, log: Log, mistakes: int | None) -> list[Step]:
        """Keep the steps in a log. Returns those that it has, with their patches on the model."""
        self.log = log
        if mistakes is None:
            mistakes = self.model.correct(self.stream).count(False)
        header = {
            "N": mistakes,
            "editor": self.editor.name,
            "model": self.model.name,
            "fingerprint": self.model.base.fingerprint,
            "stream": len(self.stream),
            "retain": {name: len(cache.examples) for name, cache in self.retained.items()},
        }
        steps, patches = log.begin(header), [*self.model.patches]
        for step in steps:
            patch = log.patch(step)
            self._add(step, patch)
            patches += [patch] if patch else []
            if isinstance(patch, Weights):
                patches = list(newest_only(patches))
            self.next_index = step.index + 1
        self.model.set_patches(patches)  # at once: older weights may have been let go
        return steps

    def record(self, step: Step, patch: Patch | None, last: bool) -> Step:
        """The step with what the model retains, written down if there is a log."""
        self._add(step, patch)
        right = {}
        if last or (self.every is not None and len(self.past.examples) % self.every == 0):
            right["edits"] = (sum(self.past.correct(self.model)), len(self.past.examples))
            for name, cache in self.retained.items():
                right[name] = (sum(cache.correct(self.model)), sum(cache.right_before))
            right |= self.probes.kept(self.model)
        step = replace(step, growth=100 * self.added / self.size, retained=right)
        if self.log is not None:
            self.log.write(step, patch)
            self.log.let_go(self.model.patches)
        return step

    def _add(self, step: Step, patch: Patch | None) -> None:
        self.past.add(self.stream[step.index], patch)
        self.probes.add(self.stream[step.index])
        if isinstance(patch, Neurons):
            self.added += patch.keys.numel() + patch.bias.numel() + patch.values.numel()


def _mistakes(
    model: Model, stream: Sequence[Example], start: int
) -> Iterator[tuple[int, Example, str]]:
    """Each example that the model gets wrong when its turn comes: index, example, wrong answer.

    A few are answered together, as far as their answers follow from what the bare net says.
    """
    for begin in range(start, len(stream), AHEAD):
        some = stream[begin : begin + AHEAD]
        known = AnswerCache(model, some) if model.is_cacheable else None
        for i, example in enumerate(some):
            answer = known.answers(model, [i])[0] if known else model.answer([example.text])[0]
            if not model.accepts(example, answer):
                yield begin + i, example, answer


def _edit(
    model: Model, editor: Editor, index: int, example: Example, before: str, shown: int
) -> tuple[Step, Patch | None]:
    """Edit the model once. Returns what that did, and the patch if the editor found one."""
    patch, error = None, None
    peak, began = watch(model.net.device), perf_counter()
    try:
        rephrasings = example.rephrasings[:shown]
        shown_example = replace(example, rephrasings=rephrasings, unrelated=())
        found = editor.edit(model, shown_example, supersede=True)
        _push(model, found)
        patch = found
    except NotFitted:  # no fault of this example
        raise
    except TPatcherError as reason:
        error = str(reason)
    seconds, taken = perf_counter() - began, peak()
    asked = [Example(r, example.answer, also=example.also) for r in example.rephrasings[shown:]]
    step = Step(
        index=index,
        text=example.text,
        answer=example.answer,
        before=before,
        fixed=_right(model, example, patch),
        rephrasings=model.correct(asked),
        neurons=len(patch.keys) if isinstance(patch, Neurons) else 0,
        growth=0.0,
        seconds=round(seconds, 4),
        patch=patch.id if patch else None,
        error=error,
        megabytes=None if taken is None else round(taken / 1e6, 1),
    )
    return step, patch


def _right(model: Model, example: Example, patch: Patch | None) -> bool:
    """Whether an example is right now; where its patch knows the way there, nothing is run."""
    known = AnswerCache(model, [])
    known.add(example, patch)
    return known.correct(model)[0]


def _push(model: Model, patch: Patch) -> None:
    """Push a patch; older ones let go of weights that it replaces."""
    model.push(patch)
    if isinstance(patch, Weights):
        model.set_patches(newest_only(model.patches))


def score(steps: Sequence[Step], mistakes: int | None = None) -> Scores:
    """The metrics of one run; ER with one division by T (the printed formula has two)."""
    if not steps:
        return Scores(1.0, 1.0, 1.0, 1.0, 1.0, 0, mistakes, 0.0, 0.0)
    last = steps[-1].retained

    def rate(name: str) -> float:
        now, begin = last.get(name, (0, 0))
        return now / begin if begin else 1.0

    kept = {name: rate(name.lower()) for name in PROBES if name.lower() in last}
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
        **kept,
    )


def summary(runs: Sequence[Sequence[Step]]) -> dict[str, tuple[float, float]]:
    """Mean and deviation over folders; SR and GR over all their edits pooled (paper, Table 5).

    What nothing was asked for is left out.
    """
    every = [step for steps in runs for step in steps]
    pooled = score(every)
    scores = [score(steps) for steps in runs if steps] or [pooled]
    right = [steps[-1].retained for steps in runs if steps]
    asked = {"GR": any(step.rephrasings for step in every)}
    for name in ("train", "test"):
        asked[f"{name.capitalize()}R"] = any(one.get(name, (0, 0))[1] for one in right)
    out = {"SR": (pooled.SR, 0.0), "GR": (pooled.GR, 0.0)}
    for name in ("ER", "TrainR", "TestR", "E", "seconds_per_edit", *PROBES):
        found = [value for s in scores if (value := getattr(s, name)) is not None]
        if found:
            out[name] = (fmean(found), pstdev(found))
    return {name: number for name, number in out.items() if asked.get(name, True)}
