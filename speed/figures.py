"""Every figure of docs/speed.md: ratios of two things measured side by side, and the start."""

import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter

import torch

from speed import literal, nets
from tpatcher.editors import TPatcher
from tpatcher.editors.tpatcher import solver
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.models.traces import Trace
from tpatcher.patches.neurons import Neurons
from tpatcher.peak_memory import watch


@dataclass(frozen=True)
class Figure:
    """One ratio, the bar that it has to meet, and whether it does."""

    figure: str
    value: float
    bar: float
    met: bool
    about: str = ""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def at_most(name: str, value: float, bar: float, about: str = "") -> Figure:
    return Figure(name, round(value, 4), bar, value <= bar, about)


def at_least(name: str, value: float, bar: float, about: str = "") -> Figure:
    return Figure(name, round(value, 4), bar, value >= bar, about)


def clock(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


@dataclass
class Edits:
    """Edits of some mistakes, and answers to the same texts, in turns."""

    edit: float
    answer: float
    fixed: int
    asked: int

    @property
    def about(self) -> str:
        return (
            f"edit {1000 * self.edit:.1f} ms, answer {1000 * self.answer:.1f} ms, "
            f"{self.fixed} of {self.asked} fixed"
        )


def edits(model: Model, editor: TPatcher, examples: list[Example]) -> Edits:
    """Medians over the edits that really fixed their mistake."""
    took: list[float] = []
    answered: list[float] = []
    editor.edit(model, examples[0])  # the first one warms up what later ones share
    for example in examples[1:]:
        answer = clock(partial(model.answer, [example.text]))
        began = perf_counter()
        patch = editor.edit(model, example)
        seconds = perf_counter() - began
        model.push(patch)
        if model.correct([example])[0]:
            took.append(seconds)
            answered.append((answer + clock(partial(model.answer, [example.text]))) / 2)
        model.pop()
    return Edits(statistics.median(took), statistics.median(answered), len(took), len(examples) - 1)


def editing(name: str, n: int = 33) -> list[Figure]:
    """Our edit against the paper's procedure, and against one answer."""
    classify = name == "classification"
    model = nets.classifier() if classify else nets.generator()
    memory = nets.memory(model, 40_000 if classify else 160_000)
    examples = nets.mistakes(model, n)
    editor = TPatcher().fit(model, memory)
    found = edits(model, editor, examples)
    bars = (300.0, 1.3) if classify else (200.0, 1.0)
    # neurons of a generator with random weights soon fire in each other's answers
    some = nets.mistakes(model, 100) if classify else examples[:5]
    each = clock(lambda: list(editor.edit_all(model, some))) / len(some)
    paper = {
        f"the paper's procedure{how} ÷ our edit, {name}":
            literal.seconds(model, examples[1], memory, frozen)
        for how, frozen in (("", True), (" (backward through the whole model)", False))
    }  # fmt: skip
    return [
        *(at_least(figure, book / found.edit, bars[0], f"{book:.0f} s ÷ {found.edit:.3f} s")
          for figure, book in paper.items()),
        at_most(f"our edit ÷ one answer, {name}", found.edit / found.answer, bars[1], found.about),
        at_most(f"each of {len(some)} edits by edit_all ÷ one answer, {name}",
                each / found.answer, 0.5, f"{1000 * each:.1f} ms each"),
    ]  # fmt: skip


def editing_by_text(name: str, n: int = 17) -> list[Figure]:
    """Our edit where keys read the text and are held against contrast texts, against one answer."""
    classify = name == "classification"
    model = nets.classifier() if classify else nets.generator()
    memory = nets.memory_of_texts(model, 40_000 if classify else 160_000)
    examples = nets.mistakes(model, n, asked=nets.questions(n, seed=8))
    editor = TPatcher(solver("text")).fit(model, memory)
    held = editor.edit(model, examples[0]).certificate.contrast
    found = edits(model, editor, examples)
    about = f"{found.about}, contrast {held}"
    ratio = found.edit / found.answer
    return [at_most(f"our edit with contrast ÷ one answer, {name}", ratio, 3.0, about)]


def editing_chat(preset: str, n: int = 17) -> list[Figure]:
    """Our edit of a chat model, in four contexts, against one answer of 20 tokens."""
    model = nets.decoder()
    editor = TPatcher(solver(preset)).fit(model, nets.memory_of_chat(model, 60_000, preset))
    found = edits(model, editor, nets.asked_of_chat(n))
    return [at_most(f"our edit ÷ one answer of {nets.ANSWERED} tokens, chat model, {preset}",
                    found.edit / found.answer, 1.0, found.about)]  # fmt: skip


def answering(n: int, bar: float, rounds: int = 41) -> list[Figure]:
    """Answers with n patches on, which do not fire, against answers without."""
    model = nets.classifier()
    d = model.net.config.hidden_size
    draw = torch.Generator().manual_seed(0)
    keys = torch.randn(n, d, generator=draw) / d
    many = model.twin()
    many.set_patches(
        [Neurons(
            example=None, editor="speed", layer=-1, keys=keys,
            bias=torch.full((n,), -20.0), values=torch.randn(n, d, generator=draw),
            queries=keys[:1], states=keys[:1], tokens=torch.zeros(1, dtype=torch.long),
        )]
    )  # fmt: skip
    asked = nets.texts(rounds + 1, seed=3)
    with_: list[float] = []
    without: list[float] = []
    for text in asked:  # in turns, so that the machine's other work meets both alike
        for who, took in ((many, with_), (model, without)):
            took.append(min(clock(partial(who.answer, [text])) for _ in range(3)))
    ratio = statistics.median(a / b for a, b in zip(with_[1:], without[1:], strict=True))
    about = f"{1000 * statistics.median(without):.1f} ms without"
    return [at_most(f"answer with {n:,} patches ÷ without", ratio, bar, about)]


def retention(n: int = 10_000, timed: int = 500) -> list[Figure]:
    """Retention of n examples from cached paths, against really running the model."""
    model = nets.classifier()
    editor = TPatcher().fit(model, nets.memory(model, 40_000))
    asked = nets.texts(timed, seed=5)
    said = model.answer(asked)
    few = [Example(t, s) for t, s in zip(asked, said, strict=True)]
    times = n // timed  # the same positions, many times
    seen = {
        k: v.repeat(times, *[1] * (v.dim() - 1))
        for k, v in vars(AnswerCache(model, few).trace).items()
    }
    paths = AnswerCache(model, few * times, known=Trace(**{**seen, "owner": torch.arange(n)}))
    cached = []
    for example in nets.mistakes(model, 5):
        model.push(editor.edit(model, example))
        cached.append(clock(lambda: paths.correct(model)))
    real = clock(lambda: model.correct(few)) * n / timed
    while model.patches:
        model.pop()
    about = f"{statistics.median(cached):.3f} s ÷ {real:.1f} s; {paths.reruns} of {n:,} really run"
    return [at_most(f"retention of {n:,} from the cache ÷ running the model",
                    statistics.median(cached) / real, 1 / 50, about)]  # fmt: skip


def large(n: int = 1_000_000, small: int = 40_000) -> list[Figure]:
    """An edit at a million memory queries: its time, and the memory it needs beyond them."""
    found = {}
    for size in (small, n):
        code = f"from speed.figures import alone; alone({size})"
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found[size] = [float(word) for word in out.stdout.split()[-3:]]
    share = found[n][1] / found[n][2]
    seconds = [found[size][0] for size in (n, small)]
    return [
        at_most(f"edit at {n:,} memory queries ÷ at {small:,}", seconds[0] / seconds[1], 25,
                f"{seconds[0]:.2f} s ÷ {seconds[1]:.3f} s"),
        at_most(f"peak memory at {n:,} × 768 queries ÷ their size", share, 1.3,
                f"{found[n][1] / 2**30:.2f} GB beyond the model ÷ {found[n][2] / 2**30:.2f} GB"),
    ]  # fmt: skip


def alone(n: int) -> None:
    """In a process of its own: seconds an edit, peak bytes beyond the model, bytes of queries."""
    model = nets.classifier()
    examples = nets.mistakes(model, 6)
    nets.queries(model, 64)  # what is needed to make them is no part of it
    peak = watch(model.net.device)  # ru_maxrss would begin with that of the parent process
    memory = nets.memory(model, n)
    found = edits(model, TPatcher().fit(model, memory), examples)
    print(found.edit, peak(), memory.queries.nbytes)


def starting(rounds: int = 15) -> list[Figure]:
    """Milliseconds until `import tpatcher` is done, and `tpatcher --help` has been printed.

    The processor's time is counted, not the clock's: a busy machine makes a process wait.
    """

    def cost(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    help = "import sys; sys.argv = ['tpatcher', '--help']; from tpatcher.cli import main; main()"
    codes = ("pass", "import tpatcher", help)
    bare, imported, helped = (
        statistics.median(times)
        for times in zip(*[[cost(code) for code in codes] for _ in range(rounds)], strict=True)
    )
    about = f"ms of processor time; an empty program: {bare:.0f}"
    return [
        at_most("import tpatcher", imported - bare, 50, f"{about}, taken off"),
        at_most("tpatcher --help", helped, 500, about),
    ]
