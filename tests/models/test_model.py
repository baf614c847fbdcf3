"""A model and the patches it wears, from one thread and from several."""

import threading
from dataclasses import replace

import pytest
import torch
import transformers as tf

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, edited, fresh, logits, wearing
from tpatcher.errors import BadInput
from tpatcher.models.model import fingerprint


def test_push_twice_and_remove_nothing() -> None:
    model = wearing("bert", *edited("bert")[1])
    with pytest.raises(BadInput, match="already"):
        model.push(model.patches[0])
    with pytest.raises(BadInput, match="has no patch 'nope'"):
        model.remove("nope")
    with pytest.raises(BadInput, match="no patch to take off"):
        fresh("bert").pop()


def test_removing_reports_fixes_that_leaned_on_it() -> None:
    """A fix that is right only through an older patch is named when that one goes."""
    first = edited("bert")[1][0]
    idle = replace(first, values=torch.zeros_like(first.values), depends_on=(first.id,), id="")
    model = wearing("bert", first, idle)
    assert first.example is not None
    assert model.correct([first.example]) == [True]
    assert model.remove(first.id) == [idle]
    assert model.remove(idle.id) == []


def test_a_superseding_fix_leans_on_the_one_it_supersedes() -> None:
    model = fresh("bert")
    editor = tp.TPatcher().fit(model, TEXTS)
    text = "who wrote hamlet ?"
    said = model.answer([text])[0]
    first, second = (a for a in ("no", "yes", "maybe") if a != said)
    model.push(editor.edit(model, tp.Example(text, first)))
    model.push(editor.edit(model, tp.Example(text, second), supersede=True))
    assert model.answer([text]) == [second]
    assert model.patches[1].depends_on == (model.patches[0].id,)  # type: ignore[attr-defined]


def test_fingerprints_tell_bases_apart_and_ignore_patches() -> None:
    base = fresh("bert")
    patched = wearing("bert", *edited("bert")[1])
    assert fingerprint(patched.net) == base.base.fingerprint
    assert fingerprint(zoo.net("bert", seed=1)) != base.base.fingerprint


def test_save_pretrained_of_a_patched_model_is_the_stock_model(tmp_path: object) -> None:
    model = wearing("bert", *edited("bert")[1])
    model.net.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    assert torch.equal(logits(tp.load(str(tmp_path))), logits(fresh("bert")))


def test_answers_while_twins_are_edited_and_swapped_in() -> None:
    """Every answer is one of the two right ones, whichever model was live when it was asked."""
    (example, *_), (patch, *_) = edited("bert")
    base = fresh("bert")
    patched = base.twin()
    patched.push(patch)
    live = [base]
    allowed = {base.answer([example.text])[0], patched.answer([example.text])[0]}
    assert len(allowed) == 2
    seen: list[str] = []
    stop = threading.Event()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                seen.extend(live[0].answer([example.text, TEXTS[0]])[:1])
        except BaseException as error:
            failed.append(error)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for thread in askers:
        thread.start()
    swaps = 0
    while not failed and (swaps < 1000 or len(seen) < 20 or set(seen) != allowed):
        for patches in ((patch,), ()):
            twin = live[0].twin()
            twin.set_patches(patches)
            live[0] = twin
            swaps += 1
    stop.set()
    for thread in askers:
        thread.join()
    assert not failed
    assert set(seen) == allowed
    assert live[0].answer([example.text]) == base.answer([example.text])


def test_net_and_pipeline_see_a_push_at_once() -> None:
    model = fresh("bart")
    example = tp.Example("the capital of peru", "lima")
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, example))
    inputs = model.tokenizer(example.text, return_tensors="pt")
    for beams in (1, 2):
        ids = model.net.generate(**inputs, num_beams=beams, do_sample=False, max_new_tokens=8)
        assert model.tokenizer.decode(ids[0], skip_special_tokens=True) == "lima"
    classifier = fresh("bert")
    wanted = next(a for a in ("yes", "no") if classifier.answer([example.text]) != [a])
    classifier.push(
        tp.TPatcher().fit(classifier, TEXTS).edit(classifier, tp.Example(example.text, wanted))
    )
    pipe = tf.pipeline("text-classification", model=classifier.net, tokenizer=classifier.tokenizer)
    assert pipe(example.text)[0]["label"] == wanted
