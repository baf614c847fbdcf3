"""A listener that only takes notes."""

from tpatcher.bench.executors import Work


class Noted:
    """What began, and what went wrong."""

    def __init__(self) -> None:
        self.begun_keys: list[str] = []
        self.errors: list[str] = []

    def begun(self, work: Work) -> None:
        self.begun_keys.append(work.key)

    def over(self, work: Work, error: str | None, again: bool) -> None:
        if error is not None:
            self.errors.append(error)
