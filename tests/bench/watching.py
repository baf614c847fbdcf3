"""Bars that nobody sees, and that take notes."""

from contextlib import AbstractContextManager
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

    def running(self, work: Work) -> AbstractContextManager[None]:
        self.begun_keys.append(work.key)
        return super().running(work)

    def tell(self, work: Work, error: str) -> None:
        self.errors.append(error)
