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
    """The last `size` questions that were answered."""

    def __init__(self, size: int = 1000) -> None:
        self._questions: deque[Question] = deque(maxlen=size)
        self._lock = threading.Lock()

    def add(self, text: str, reply: Reply) -> None:
        """Remember a question and its answer."""
        tokens = torch.tensor(reply.ids).expand(len(reply.queries))  # a label is at each position
        with self._lock:
            self._questions.append(Question(text, reply.text, reply.queries, tokens))

    def latest(self) -> list[Question]:
        """The questions, oldest first; one that was asked again counts once."""
        with self._lock:
            return list({question.text: question for question in self._questions}.values())
