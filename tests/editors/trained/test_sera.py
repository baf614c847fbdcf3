"""SERA and SERAC: the cached answer inside the scope, the model's own outside."""

import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, examples, fresh
from tpatcher.editors import Sera, Serac
from tpatcher.patches.cached_answer import CachedAnswer, Scope, token_states
from tpatcher.patches.pointer_network import Counterfactual


def cached(model: tp.Model, text: str, answer: str, radius: float) -> CachedAnswer:
    """A cached edit whose scope is everything within a distance."""
    torch.manual_seed(0)
    inputs, mask = token_states(model.net, model.task, [text])
    scope = Scope(inputs.shape[-1], 8)
    scope.log_radius.data = torch.tensor(radius).log()
    with torch.no_grad():
        embedding = scope(inputs, mask)[0]
    return CachedAnswer(
        example=tp.Example(text, answer), editor="sera", answer=answer, embedding=embedding,
        scope=scope.state_dict(),
    )  # fmt: skip


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


def test_the_scope_learns_what_rephrasings_have_in_common() -> None:
    model = fresh("bert")
    names = ["france", "spain", "italy", "japan", "peru", "rome", "paris", "lima"]
    known = [
        tp.Example(f"what is the capital of {n} ?", "no", rephrasings=(f"{n} , which city ?",))
        for n in names
    ]
    editor = Sera(steps=150, learning_rate=1e-2, progress=False).fit(model, known)
    model.push(editor.edit(model, tp.Example(known[0].text, "maybe")))
    asked = [known[0].rephrasings[0], *(k.rephrasings[0] for k in known[1:])]
    assert model.answer(asked) == ["maybe", *fresh("bert").answer(asked[1:])]


def test_the_counterfactual_model_learns_to_give_the_answer() -> None:
    model = fresh("bart")
    editor = Serac(steps=150, learning_rate=1e-2, size=8, progress=False)
    editor.fit(model, examples("bart"))
    patch = editor.edit(model, tp.Example("who is william ?", "shakespeare"))
    assert isinstance(patch, CachedAnswer)
    copier = Counterfactual.from_state(patch.counterfactual)
    assert copier.answer(model.tokenizer, "red fish", "what was it ?") == "red fish"
    model.push(patch)
    assert model.answer(["who is william ?"]) == ["shakespeare"]
