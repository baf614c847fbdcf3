"""Real weights and real mistakes, in the folder that the environment variable TPATCHER_DATA names.

It holds `data/` (fever, zsre, counterfact, entityquestions) and `models/` (fever-minilm,
zsre-marian).
"""

import os
from pathlib import Path

import pytest

import tpatcher as tp
from tpatcher.data import dataset

GIVEN = os.environ.get("TPATCHER_DATA")
REAL = Path(GIVEN or "/")
pytestmark = pytest.mark.skipif(GIVEN is None, reason="TPATCHER_DATA is not set")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("fever", [24_458, 986, 5_465]),
        ("zsre", [9_828, 1_215, 22_951]),
        ("counterfact", [9_000, 1_919, 1_000]),
    ],
)
def test_the_parts_of_real_datasets(name: str, sizes: list[int]) -> None:
    options = {}
    if name == "zsre":
        options["exclude"] = REAL / "models" / "zsre-marian" / "trained_on.txt.gz"
    split = dataset(name, REAL / "data", **options)
    assert [len(p) for p in (split.train, split.edit, split.test)] == sizes
    if name == "zsre":
        assert not any(e.text.startswith("nq question") for x in split.train for e in x.unrelated)
        assert not {e.text for e in split.test} & {e.text for e in (*split.edit, *split.train)}


def test_twenty_real_mistakes_of_a_fact_checker() -> None:
    model = tp.load(REAL / "models" / "fever-minilm")
    split = dataset("fever", REAL / "data")
    texts = [e.text for e in split.train[:1000]]
    editor = tp.TPatcher().fit(model, texts)
    said = model.answer(texts[:200])
    right = model.correct(split.edit[:120])
    mistakes = [e for e, ok in zip(split.edit, right, strict=False) if not ok][:20]
    for example in mistakes:
        if not model.correct([example])[0]:  # an earlier fix may have covered it
            patch = editor.edit(model, tp.Example(example.text, example.answer))
            assert patch.certificate.memory_changed == 0
            model.push(patch)
    assert len(mistakes) == 20
    assert model.correct(mistakes) == [True] * 20
    assert model.answer(texts[:200]) == said
    rephrased = [tp.Example(r, e.answer) for e in mistakes for r in e.rephrasings]
    assert sum(model.correct(rephrased)) > 0.6 * len(rephrased)
