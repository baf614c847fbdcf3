"""Real weights and real mistakes, where they are at hand."""

from pathlib import Path

import pytest

import tpatcher as tp
from tpatcher.data import dataset

SHARED = Path(__file__).parents[2] / "shared"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
def test_twenty_real_mistakes_of_a_fact_checker() -> None:
    model = tp.load(SHARED / "models" / "fever-minilm")
    split = dataset("fever", SHARED / "data")
    texts = [e.text for e in split.train[:1000]]
    editor = tp.TPatcher().fit(model, texts)
    said = model.answer(texts[:200])
    right = model.correct(split.edit[:120])
    mistakes = [e for e, ok in zip(split.edit, right, strict=False) if not ok][:20]
    for example in mistakes:
        if not model.correct([example])[0]:  # an earlier fix may have covered it
            patch = editor.edit(model, tp.Example(example.text, example.answer))
            assert patch.report["memory answers changed"] == 0
            model.push(patch)
    assert len(mistakes) == 20
    assert model.correct(mistakes) == [True] * 20
    assert model.answer(texts[:200]) == said
    rephrased = [tp.Example(r, e.answer) for e in mistakes for r in e.rephrasings]
    assert sum(model.correct(rephrased)) > 0.6 * len(rephrased)
