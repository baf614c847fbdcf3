"""The cache of corrections: the nearest fixed text answers, or the model does."""

from pathlib import Path

import pytest
import torch

import tpatcher as tp
from tests.helpers import QUESTIONS, fresh, saved
from tpatcher.editors import Cache
from tpatcher.errors import BadInput
from tpatcher.nets import sentences
from tpatcher.patches import pack, sentence_encoder
from tpatcher.patches.nearest_answer import NearestAnswer


def test_a_fixed_text_is_looked_up_and_others_are_left_to_the_model() -> None:
    for name, answer in (("bert", "no"), ("bart", "paris"), ("gpt2", "lima")):
        model = fresh(name)
        said = model.answer(QUESTIONS)
        at = next(i for i, one in enumerate(said) if one != answer)
        model.push(Cache(threshold=1.0).edit(model, tp.Example(QUESTIONS[at], answer)))
        assert model.answer(QUESTIONS) == [answer if i == at else one for i, one in enumerate(said)]
        model.pop()
        model.push(Cache(threshold=-1.0).edit(model, tp.Example(QUESTIONS[at], answer)))
        assert model.answer(QUESTIONS) == [answer] * len(QUESTIONS)


def test_the_nearest_answers_and_of_equals_the_newest() -> None:
    model = fresh("gpt2")
    editor = Cache(threshold=-1.0)
    for text, answer in ((QUESTIONS[0], "paris"), (QUESTIONS[1], "lima"), (QUESTIONS[1], "rome")):
        model.push(editor.edit(model, tp.Example(text, answer), supersede=True))
    assert model.answer(QUESTIONS[:2]) == ["paris", "rome"]


def test_embeddings_are_means_over_tokens_without_padding() -> None:
    model = fresh("bert")
    both = sentence_encoder.embed(model.net, model.task, [QUESTIONS[0], "dog"])
    alone = sentence_encoder.embed(model.net, model.task, ["dog"])
    assert torch.allclose(both[1], alone[0], atol=1e-5)
    assert torch.allclose(both.norm(dim=-1), torch.ones(2))
    with torch.no_grad():
        states = model.net.base_model(**model.task.encode(["dog"])).last_hidden_state[0]
    mean = states.mean(0)
    assert torch.allclose(alone[0], mean / mean.norm(), atol=1e-5)


def test_another_encoder_is_loaded_once_and_named_in_the_pack(tmp_path: Path) -> None:
    encoder = str(saved(tmp_path / "encoder", "bert"))
    model = fresh("gpt2")
    editor = Cache(threshold=0.999, encoder=encoder)
    loaded = sentences.known.cache_info().misses
    for text in QUESTIONS[:2]:
        model.push(editor.edit(model, tp.Example(text, "paris")))
    assert sentences.known.cache_info().misses == loaded + 1
    said = model.answer(QUESTIONS)
    assert said[:2] == ["paris", "paris"]
    model.save_patches(tmp_path / "pack", text=False)
    again = fresh("gpt2")
    again.set_patches(pack.read(tmp_path / "pack", again.base))
    assert again.answer(QUESTIONS) == said
    assert all(
        isinstance(p, NearestAnswer) and (p.encoder, p.threshold) == (encoder, 0.999)
        for p in again.patches
    )


def test_corrections_of_two_encoders_go_together(tmp_path: Path) -> None:
    encoder = str(saved(tmp_path, "bert"))
    model = fresh("gpt2")
    model.push(Cache(threshold=1.0).edit(model, tp.Example(QUESTIONS[0], "paris")))
    model.push(Cache(1.0, encoder).edit(model, tp.Example(QUESTIONS[1], "lima")))
    assert model.answer(QUESTIONS[:2]) == ["paris", "lima"]


def test_an_encoder_that_is_not_there_and_a_threshold_that_is_no_cosine(tmp_path: Path) -> None:
    model = fresh("bert")
    missing = str(tmp_path / "missing")
    with pytest.raises(BadInput, match="cannot load the sentence encoder"):
        Cache(encoder=missing).solve(model, tp.Example(QUESTIONS[0], "no"))
    with pytest.raises(BadInput, match="is a cosine, from -1 to 1; found 80"):
        Cache(threshold=80)
