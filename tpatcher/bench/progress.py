"""What is shown while jobs run: a bar for all of them, and one for each that is running."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from tpatcher.bench.executors import Work


def bars(console: Console) -> Progress:
    """Bars with a count, the time so far and the time left."""
    return _Bars(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), console=console, refresh_per_second=2,
    )  # fmt: skip


class _Bars(Progress):
    """Reads how far a task is off the steps that its job writes, wherever that runs."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            if "steps" in task.fields:
                with suppress(FileNotFoundError):  # its first line is a header
                    lines = task.fields["steps"].read_bytes().count(b"\n")
                    self.update(task.id, completed=max(0, lines - 1))
        return super().get_renderables()


class JobBars:
    """The bars of a list of works."""

    def __init__(self, console: Console, todo: Sequence["Work"], out: Path) -> None:
        self.out, self.progress = out, bars(console)
        done = sum(work.done(out) for work in todo)
        self.all = self.progress.add_task("[bold]all jobs", total=len(todo), completed=done)
        self.running: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def begun(self, work: "Work") -> None:
        name = f"  {work.key.rpartition('-')[0]}"
        if work.only_fit:
            bar = self.progress.add_task(name, total=None)
        else:
            steps = work.folder(self.out) / "steps.jsonl"
            bar = self.progress.add_task(name, total=work.job.edits, steps=steps)
        self.running[work.key] = bar

    def over(self, work: "Work", error: str | None, again: bool) -> None:
        self.progress.remove_task(self.running.pop(work.key))
        if error is not None:
            more = ": once more" if again else ""
            self.progress.console.print(f"[red]{work.key}[/] {error}{more}", highlight=False)
        if not again:
            self.progress.advance(self.all)
