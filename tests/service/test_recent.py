"""The latest questions."""

import torch

from tpatcher.service.answering import Reply
from tpatcher.service.recent import RecentQuestions


def reply(text: str) -> Reply:
    return Reply([3], text, {}, torch.zeros(2, 4))


def test_a_question_asked_again_counts_once_with_its_newest_answer() -> None:
    recent = RecentQuestions(size=3)
    for text, answer in (("z", "-"), ("a", "old"), ("b", "no"), ("a", "new")):
        recent.add(text, reply(answer))
    questions = recent.latest()
    assert [(q.text, q.answer) for q in questions] == [("a", "new"), ("b", "no")]
    assert questions[0].tokens.tolist() == [3, 3]  # a label stands at each position


def test_long_questions_push_out_more_of_the_others() -> None:
    recent = RecentQuestions(size=100, max_numbers=1000)
    for n in range(50):
        reply = Reply([0] * 10, "no", {}, torch.zeros(10, 10))
        recent.add(f"question {n}", reply)
    assert [q.text for q in recent.latest()] == [f"question {n}" for n in range(40, 50)]
