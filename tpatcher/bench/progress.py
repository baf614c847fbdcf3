"""What is shown while jobs run: a bar for all of them, and one for each that is running."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from tpatcher.bench.job import Work


class Bars(Progress):
    """Bars with a count, the time so far and the time left."""

    def __init__(self, console: Console) -> None:
        columns = (*self.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, refresh_per_second=2)


class JobBars(Bars):
    """The bars of a list of works, read off the steps that a job writes wherever it runs."""

    def __init__(self, console: Console, todo: Sequence[Work], out: Path) -> None:
        super().__init__(console)
        self.out = out
        done = sum(work.done(out) for work in todo)
        self.all = self.add_task("[bold]all jobs", total=len(todo), completed=done)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            if "steps" in task.fields:
                # its first line is a header; the work may be over by now
                with suppress(FileNotFoundError, KeyError):
                    lines = task.fields["steps"].read_bytes().count(b"\n")
                    self.update(task.id, completed=max(0, lines - 1))
        return super().get_renderables()

    @contextmanager
    def running(self, work: Work) -> Iterator[None]:
        """Show a bar for this work."""
        total = None if work.only_fit else work.job.edits
        steps = work.folder(self.out) / "steps.jsonl"
        bar = self.add_task(f"  {work.key.rpartition('-')[0]}", total=total, steps=steps)
        try:
            yield
        finally:
            self.remove_task(bar)

    def tell(self, work: Work, error: str) -> None:
        self.console.print(f"[red]{work.key}[/] {escape(str(error))}", highlight=False)

    def over(self, work: Work, error: str | None) -> None:
        """Count a work that is done, or that failed for good."""
        self.advance(self.all)
        if error is not None:
            self.tell(work, error)
