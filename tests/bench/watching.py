"""Bars that nobody sees, and that take notes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tpatcher.bench.job import Work
from tpatcher.bench.progress import JobBars


class Noted(JobBars):
    """What began, and what went wrong."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True), [], Path())
        self.begun_keys: list[str] = []
        self.errors: list[str] = []

    @contextmanager
    def running(self, work: Work) -> Iterator[None]:
        self.begun_keys.append(work.key)
        yield

    def tell(self, work: Work, error: str) -> None:
        self.errors.append(error)
