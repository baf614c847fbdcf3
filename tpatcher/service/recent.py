"""The latest questions: a sample of traffic for the guard, and what the page's pictures show."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
from torch import Tensor

from tpatcher.service.answering import Said


@dataclass(frozen=True)
class Asked:
    """A question that was answered, with its queries in the last layer."""

    text: str
    answer: str
    queries: Tensor  # (P, d)
    tokens: Tensor  # (P,): the label or token given there
    fixes: tuple[int, ...]
    at: str


class Traffic:
    """The last few hundred questions, in memory only."""

    def __init__(self, size: int = 1000) -> None:
        self.asked: deque[Asked] = deque(maxlen=size)
        self.lock = threading.Lock()

    def add(self, text: str, said: Said, fixes: Sequence[int]) -> None:
        """Remember an answer."""
        tokens = torch.tensor(said.ids).expand(len(said.queries))  # a label stands at each position
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self.lock:
            self.asked.append(Asked(text, said.text, said.queries, tokens, tuple(fixes), now))

    def latest(self, n: int | None = None) -> list[Asked]:
        """The newest questions, oldest of them first."""
        with self.lock:
            found = list(self.asked)
        return found if n is None else found[-n:]
