"""Traffic that was answered rightly joins the memory, and later fixes leave it alone."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.helpers import TEXTS, fresh, stream_of, wrong
from tpatcher import sme
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.editors.tpatcher.remembering import remember
from tpatcher.nets.reading import Reads


@pytest.mark.parametrize("reads", ["position", "text"])
@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_what_is_remembered_responds_as_if_it_had_been_collected(name: str, reads: Reads) -> None:
    model = fresh(name)
    begin, more = (
        tp.Memory.collect(model, texts, reads=reads, background=False)
        for texts in (TEXTS[:20], TEXTS[20:30])
    )
    both = remember(begin, model, TEXTS[20:30])
    keys = torch.randn(3, both.width, generator=torch.Generator().manual_seed(0))
    whole = torch.cat([begin.respond(keys), more.respond(keys)], dim=1)
    torch.testing.assert_close(both.respond(keys), whole)
    assert both.counts["answers"] == begin.counts["answers"] + more.counts["answers"]
    assert both.text_of(len(both) - 1) == more.text_of(len(more) - 1)
    row = len(begin)
    assert row in both.rows_of([both.text_of(row)])
    assert both.mean is begin.mean and both.factor is begin.factor


def test_a_fix_leaves_alone_what_is_remembered() -> None:
    model = fresh("bert")
    editor = tp.TPatcher(MaxMargin(crossing=0.02)).fit(model, TEXTS[:20])
    mistake = wrong(model, "the dog is red")
    draw = Random(0)
    asked = [f"{' '.join(draw.choices(zoo.WORDS, k=2))} dog is red" for _ in range(200)]
    said = model.answer(asked)

    def lost(editor: tp.TPatcher) -> int:
        fixed = model.twin()
        fixed.push(editor.edit(model, mistake))
        now = fixed.answer(asked)
        return sum(a != b for a, b in zip(said, now, strict=True))

    assert lost(editor) > 0, "the texts must be near enough to be hurt"
    assert lost(editor.remember(model, asked)) == 0


def test_an_editor_without_a_memory_remembers_nothing() -> None:
    model = fresh("bert")
    for editor in (tp.TPatcher(), tp.editors.FTLast()):
        assert editor.remember(model, TEXTS) is editor
    fitted = tp.TPatcher().fit(model, TEXTS[:20])
    assert fitted.remember(model, []) is fitted


def test_a_stream_is_remembered_up_to_each_mistake_also_when_it_is_resumed(tmp_path: Path) -> None:
    def held(out: Path, steps: int) -> list[int]:
        """How many answers the memory of each edit had, of so many steps at most."""
        model = fresh("bert")
        right = [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
        some = stream_of(model)
        stream = [*right[20:40], *some[:3], *right[40:60], *some[3:6]]
        editor = tp.TPatcher().fit(model, TEXTS[:20])
        list(islice(sme.run(model, editor, stream, out=out, remember=True), steps))
        return [patch.certificate.memory["answers"] for patch in model.patches]

    whole = held(tmp_path / "whole", 100)
    assert whole[0] == 20 + 16
    assert whole[-1] > whole[0]
    assert held(tmp_path / "cut", 2) == whole[:2]
    assert held(tmp_path / "cut", 100) == whole
