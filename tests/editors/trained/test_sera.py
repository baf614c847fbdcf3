"""SERA and SERAC: the cached answer inside the scope, the model's own outside."""

from pathlib import Path
from random import Random

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import QUESTIONS, examples, fresh, saved
from tpatcher.editors import Sera, Serac
from tpatcher.editors.trained.sera import shallow
from tpatcher.editors.trained.training_edits import TrainingEdits
from tpatcher.errors import BadInput, NotFitted
from tpatcher.patches import companions, from_bytes
from tpatcher.patches.cached_answer import CachedAnswer, Scope, token_states

NAMES = ["france", "spain", "italy", "japan", "peru", "rome", "paris", "lima"]
KNOWN = [
    tp.Example(f"what is the capital of {n} ?", "no", rephrasings=(f"{n} , which city ?",))
    for n in NAMES
]


def cached(model: tp.Model, text: str, answer: str, radius: float) -> CachedAnswer:
    """A cached edit as 0.1.0 made it, whose scope is everything within a distance."""
    torch.manual_seed(0)
    inputs, mask = token_states(model.net, model.task, [text])
    scope = Scope(inputs.shape[-1], 8)
    scope.log_radius.data = torch.tensor(radius).log()
    with torch.no_grad():
        embedding = scope(inputs, mask)[0]
    return CachedAnswer(
        example=tp.Example(text, answer),
        editor="sera",
        answer=answer,
        embedding=embedding,
        scope=scope.state_dict(),
    )


def test_cached_answer_inside_and_own_answer_outside() -> None:
    for name, answer in (("bert", "no"), ("bart", "paris"), ("gpt2", "lima")):
        model = fresh(name)
        said = model.answer(QUESTIONS)
        model.push(cached(model, QUESTIONS[1], answer, 1e-4))
        assert model.answer(QUESTIONS) == [answer if i == 1 else one for i, one in enumerate(said)]
        assert not model.tail_is_exact
        model.pop()
        model.push(cached(model, QUESTIONS[1], answer, 1e4))
        assert model.answer(QUESTIONS) == [answer] * len(QUESTIONS)


def test_the_nearest_edit_speaks_and_of_equals_the_newest() -> None:
    model = fresh("gpt2")
    for text, answer in ((QUESTIONS[0], "paris"), (QUESTIONS[1], "lima"), (QUESTIONS[1], "rome")):
        model.push(cached(model, text, answer, 1e4))
    assert model.answer(QUESTIONS[:2]) == ["paris", "rome"]


def test_it_works_without_the_text_of_the_edit() -> None:
    model = fresh("gpt2")
    model.push(cached(model, QUESTIONS[0], "paris", 1e-4).without_text())
    assert model.answer(QUESTIONS[:1]) == ["paris"]


@pytest.mark.parametrize("other", [False, True])
def test_the_scope_learns_what_rephrasings_have_in_common(other: bool, tmp_path: Path) -> None:
    """With a copy of the model's encoder, or with another net; all of it is trained."""
    model = fresh("bert")
    encoder = str(saved(tmp_path, "bert")) if other else ""
    editor = Sera(steps=60, learning_rate=3e-3, encoder=encoder, progress=False)
    editor.check_every, editor.validation = 20, 8
    editor.fit(model, KNOWN)
    before = dict(zoo.net("bert").base_model.named_parameters())
    moved = [n for n, p in before.items() if not torch.equal(p, editor.state[f"scope.{n}"])]
    assert len(moved) > len(before) - 4, "all but what no token reaches, as the pooler"
    model.push(editor.edit(model, tp.Example(KNOWN[0].text, "maybe")))
    asked = [known.rephrasings[0] for known in KNOWN]
    assert model.answer(asked) == ["maybe", *fresh("bert").answer(asked[1:])]


def test_a_patch_is_small_and_its_nets_stay_with_the_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh("bart")
    editor = Serac(steps=1, encoder="", validation=4, progress=False).fit(model, examples("bart"))
    patch = editor.edit(model, tp.Example(QUESTIONS[0], "lima"))
    assert len(patch.to_bytes()) < 5000
    editor.save(tmp_path)
    monkeypatch.setattr(companions, "_KNOWN", {})  # another process
    model.push(from_bytes(patch.to_bytes()))
    with pytest.raises(NotFitted, match="call attach"):
        model.answer(QUESTIONS[:1])
    Serac.load(tmp_path).attach(model)
    model.answer(QUESTIONS)
    assert isinstance(patch, CachedAnswer)
    assert {patch.encoder, patch.counterfactual} == companions._KNOWN.keys()


def test_an_encoder_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="no/such"):
        Sera(encoder="no/such").fit(fresh("bert"), KNOWN)


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_the_counterfactual_model_is_a_smaller_one_of_the_family(name: str) -> None:
    net = fresh(name).net
    small = shallow(net, 1)
    assert type(small) is type(net)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in net.parameters())
    own = dict(net.named_parameters())
    assert all(torch.equal(p, own[n]) for n, p in small.named_parameters())


def test_the_counterfactual_model_learns_to_give_the_cached_answer() -> None:
    model = fresh("bart")
    known = [tp.Example(q, a) for q in QUESTIONS for a in ("paris", "lima", "red")]
    editor = Serac(steps=60, encoder="", learning_rate=1e-4, counterfactual_rate=3e-3)
    editor.check_every, editor.validation, editor.progress = 20, 8, False
    editor.fit(model, known)
    for answer in ("paris", "lima"):
        twin = model.twin()
        twin.push(editor.edit(model, tp.Example(QUESTIONS[0], answer)))
        assert twin.answer(QUESTIONS[:1]) == [answer], "it reads the edit, and not the text alone"


def test_half_of_a_batch_are_near_to_the_others() -> None:
    """They share a rare word, and so are hard to tell apart."""
    words = [f"name{i}" for i in range(100)]
    known = [tp.Example(f"{said} {w} ?", "no") for w in words for said in ("who is", "where is")]
    drawn = [e.text.split()[2] for e, _ in TrainingEdits(fresh("bert"), known).pairs(Random(0), 20)]
    assert len(drawn) == 20
    assert sum(drawn.count(name) > 1 for name in drawn) >= 10
