"""Training edits: what the model is to be taught, and what should stay."""

from random import Random

import pytest

import tpatcher as tp
from tests.helpers import QUESTIONS, examples, fresh
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.errors import BadInput


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_an_edit_teaches_another_answer_and_names_what_stays(name: str) -> None:
    model = fresh(name)
    edits = TrainingEdits(model, examples(name))
    answers = dict(zip(QUESTIONS, model.answer(QUESTIONS), strict=True))
    for seed in range(20):
        (edit,) = edits.draw(Random(seed), 1, n_local=2)
        assert edit.model_answer == answers[edit.text]
        assert edit.answer != edit.model_answer
        assert edit.text not in edit.local_texts
        kept = model.task.decode(edit.local_targets)
        assert kept == [answers[text] for text in edit.local_texts]
        assert edits.draw(Random(seed), 1, n_local=2) == [edit]


def test_a_mistake_is_taught_its_right_answer() -> None:
    model = fresh("bart")
    wrong = [tp.Example(text, "paris", rephrasings=(f"{text} ?",)) for text in QUESTIONS[:4]]
    assert not any(model.correct(wrong))
    (edit,) = TrainingEdits(model, wrong).draw(Random(0), 1, n_local=1)
    assert (edit.answer, edit.rephrasing) == ("paris", f"{edit.text} ?")


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 4 examples; found 3"):
        TrainingEdits(fresh("bert"), QUESTIONS[:3])


def test_answers_that_cannot_be_expressed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("bart")
    edits = TrainingEdits(model, QUESTIONS)
    monkeypatch.setattr(edits, "_new_answer", lambda i, rng: "")
    with pytest.raises(BadInput, match="100 random examples in a row had no answer"):
        edits.draw(Random(0), 1, n_local=1)
