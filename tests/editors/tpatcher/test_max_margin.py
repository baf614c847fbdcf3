"""Max-margin neurons: the certificate, and what cannot be told apart from the memory."""

from random import Random
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests.helpers import ASKED, RIGHT, TEXTS, fresh, wrong
from tpatcher.editors.tpatcher import max_margin
from tpatcher.editors.tpatcher.check import check as real_check
from tpatcher.editors.tpatcher.mistake import Mistake, PastFixes
from tpatcher.errors import NotFixed
from tpatcher.patches.certificate import Certificate


def test_a_mistake_inside_the_memory_names_its_neighbours() -> None:
    model = fresh("bert")
    example = wrong(model, "who wrote hamlet ?")
    memory = tp.Memory.collect(model, TEXTS)
    seen = tp.Memory.collect(model, [example.text, "who ?"])
    # clearly beyond the mistake, seen from the middle: rounding decides about an exact double
    middle, own = memory.queries.mean(0), seen.queries[seen.rows_of([example.text])]
    memory.queries = torch.cat([memory.queries, middle + 1.5 * (own - middle)])
    assert memory.answers is not None
    memory.answers = torch.cat([memory.answers, torch.tensor([-1])])
    assert memory.owner is not None
    memory.owner = torch.cat([memory.owner, torch.tensor([5])])  # as if it were another text's
    memory.states = memory.gap = None
    with pytest.raises(NotFixed, match=TEXTS[5].replace("?", r"\?").replace(".", r"\.")):
        tp.TPatcher().fit(model, memory).edit(model, example)
    assert model.patches == ()


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_nothing_in_memory_changes_and_past_fixes_hold(name: str) -> None:
    model = fresh(name)
    said = model.answer(TEXTS)
    editor = tp.TPatcher().fit(model, TEXTS)
    done: list[tp.Example] = []
    for word in ("river", "city", "bird", "fish", "capital"):
        text = f"what is the {word} of rome ?"
        answers = ["yes", "no", "maybe"] if name == "bert" else ["paris", "lima"]
        others = [a for a in answers if a != model.answer([text])[0]]
        example = tp.Example(text, Random(word).choice(others))
        patch = editor.edit(model, example)
        model.push(patch)
        done.append(example)
        checked = patch.certificate
        assert (checked.memory_changed, checked.past_fixes_changed) == (0, 0)
        assert checked.memory_above_beta == 0
        assert min(checked.response) > 0
        assert model.correct(done) == [True] * len(done)
        assert model.answer(TEXTS) == said


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_the_logits_that_prove_an_answer_are_those_of_the_patched_model(name: str) -> None:
    model, solver = fresh(name), max_margin.MaxMargin()
    memory = tp.Memory.collect(model, TEXTS)
    example = wrong(model, "who wrote hamlet ?")
    mistake = Mistake.find(model, example)
    past = PastFixes.of(model, [example.text], -1)
    patch, logits = solver._solve_once(mistake, memory, past)
    assert logits is not None and mistake.right_by(logits)
    torch.testing.assert_close(logits, mistake.positions.logits(patch.rows), rtol=1e-4, atol=1e-4)
    assert not mistake.right_by(mistake.positions.now())


def test_logits_with_keys_that_were_solved_again_prove_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, rounds = fresh("bart"), [frozenset({3}), frozenset[int]()]

    def check(*args: Any) -> tuple[frozenset[int], Certificate]:
        return rounds.pop(0), real_check(*args)[1]

    monkeypatch.setattr(max_margin, "check", check)
    memory, example = tp.Memory.collect(model, TEXTS), wrong(model, "who wrote hamlet ?")
    past = PastFixes.of(model, [example.text], -1)
    _, logits = max_margin.MaxMargin()._solve_once(Mistake.find(model, example), memory, past)
    assert not rounds and logits is None


def test_what_would_change_other_answers_whatever_is_done_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    monkeypatch.setattr(max_margin, "check", lambda *_: ({3, 5}, Certificate()))
    with pytest.raises(NotFixed, match="2 answers of the memory"):
        editor.edit(model, wrong(model, "who wrote hamlet ?"))


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_an_answer_that_follows_from_the_trace_is_not_generated_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh(name)
    editor = tp.TPatcher().fit(model, TEXTS)
    answers = RIGHT[model.task.name]
    wanted = next(a for a in answers if a != model.answer([ASKED[0]])[0])
    example = tp.Example(ASKED[0], wanted)
    with monkeypatch.context() as patched:
        patched.setattr(type(model.task), "predict", lambda *_: pytest.fail("it was run again"))
        patch = editor.edit(model, example)
    model.push(patch)
    assert model.correct([example]) == [True]
