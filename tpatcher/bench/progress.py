"""What is shown while jobs run: the whole with the time left, and each one that is running."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from tpatcher.bench.runner import Work


class Screen:
    """Bars for a list of works; each one's progress is read off the steps that it writes."""

    def __init__(
        self, console: Console, works: Sequence[Work], out: Path, seconds: Mapping[str, float],
        edits: Mapping[str, int], slots: int,
    ) -> None:  # fmt: skip
        self.out, self.seconds, self.edits = out, dict(seconds), edits
        self.left = {w.key: seconds[w.key] for w in works if not w.done(out)}
        self.slots, self.done, self.took = slots, len(works) - len(self.left), 0.0
        self.guessed = 0.0
        self.began: dict[str, float] = {}
        self.bars: dict[str, Any] = {}
        self.progress = Progress(
            TextColumn("{task.description}"), Bar(), Count(), TimeElapsedColumn(), Left(),
            console=console, refresh_per_second=2,
        )  # fmt: skip
        self.whole = self.progress.add_task(
            "[bold]all jobs", total=len(works), completed=self.done, screen=self, file=None
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.stop()

    def begun(self, work: Work) -> None:
        self.began[work.key] = monotonic()
        file = None if work.only_fit else work.place(self.out) / "steps.jsonl"
        total = None if work.only_fit else self.edits[work.key]
        name = work.key.rpartition("-")[0]
        self.bars[work.key] = self.progress.add_task(f"  {name}", total=total, file=file)

    def over(self, work: Work, error: Exception | None, again: bool) -> None:
        self.progress.remove_task(self.bars.pop(work.key))
        if error is not None:
            more = ": once more" if again else ""
            self.progress.console.print(f"[red]{work.key}[/] {error}{more}", highlight=False)
        if again:
            return
        self.took += monotonic() - self.began[work.key]
        self.guessed += self.left.pop(work.key, 0.0)
        self.progress.advance(self.whole)

    def time_left(self) -> float:
        """From the estimates, put right by how long the jobs so far really took."""
        pace = self.took / self.guessed if self.guessed else 1.0
        now = monotonic()
        spent = sum(min(now - self.began[key], pace * self.left.get(key, 0.0)) for key in self.bars)
        return max(0.0, pace * sum(self.left.values()) - spent) / self.slots


class Bar(ProgressColumn):
    """How far a task is."""

    def render(self, task: Task) -> ProgressBar:
        return ProgressBar(
            total=task.total, completed=_completed(task), width=24, pulse=task.total is None
        )


class Count(ProgressColumn):
    """The same in numbers."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("fitting", style="dim")
        return Text(f"{_completed(task):.0f}/{task.total:.0f}", style="progress.download")


class Left(ProgressColumn):
    """The time left for the whole."""

    def render(self, task: Task) -> Text:
        screen = task.fields.get("screen")
        if not isinstance(screen, Screen):
            return Text("")
        return Text(f"about {timedelta(seconds=round(screen.time_left()))} left", style="cyan")


def _completed(task: Task) -> float:
    file = task.fields.get("file")
    if file is None:
        return task.completed
    try:
        return max(0, file.read_bytes().count(b"\n") - 1)  # the first line is the header
    except FileNotFoundError:
        return 0
