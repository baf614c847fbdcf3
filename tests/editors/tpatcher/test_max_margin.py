"""Max-margin neurons: the certificate, and what cannot be told apart from the memory."""

from random import Random

import pytest
import torch

import tpatcher as tp
from tests.helpers import ASKED, RIGHT, TEXTS, fresh, wrong
from tpatcher.editors.tpatcher import max_margin
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
