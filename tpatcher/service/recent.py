"""The latest questions, in memory only: what the guard counts firings on, and the page shows."""

import threading
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from tpatcher.service.answering import Reply


@dataclass(frozen=True)
class Question:
    """A question that was answered, with its queries in the last layer."""

    text: str
    answer: str
    queries: Tensor  # (P, d)
    tokens: Tensor  # (P,): the label or token given there


class RecentQuestions:
    """The last `size` questions that were answered; fewer if their queries are long."""

    def __init__(self, size: int = 1000, max_numbers: int = 1 << 24) -> None:
        self._questions: deque[Question] = deque()
        self._size, self._max_numbers, self._numbers = size, max_numbers, 0
        self._lock = threading.Lock()

    def add(self, text: str, reply: Reply) -> None:
        """Remember a question and its answer."""
        tokens = torch.tensor(reply.ids).expand(len(reply.queries))  # a label is at each position
        with self._lock:
            self._questions.append(Question(text, reply.text, reply.queries, tokens))
            self._numbers += reply.queries.numel()
            while len(self._questions) > self._size or self._numbers > self._max_numbers:
                self._numbers -= self._questions.popleft().queries.numel()

    def latest(self) -> list[Question]:
        """The questions, oldest first; one that was asked again counts once."""
        with self._lock:
            return list({question.text: question for question in self._questions}.values())
