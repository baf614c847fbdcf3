"""The dial: points of both editors, a recommendation, a picture."""

from itertools import islice
from pathlib import Path

import pytest

import tpatcher as tp
from tests.helpers import RIGHT, TEXTS, fresh, wrong_label
from tpatcher.bench.frontier import FRACTIONS, THRESHOLDS, Dial, Point, draw, recommended
from tpatcher.editors import Editor
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.errors import BadInput

ASK = ("the river", "the bird", "the dog", "the city")
TRAFFIC = [*TEXTS, *(f"{ask} of {city} ?" for ask in ASK for city in ("rome", "lima", "paris"))]


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_every_setting_is_a_whole_run(name: str, tmp_path: Path) -> None:
    model = fresh(name)
    answers = RIGHT[model.task.name]
    said = model.answer(["the fish of rome ?"])[0]
    wanted = next(a for a in answers if a != said)
    mistake = tp.Example("the fish of rome ?", wanted, rephrasings=("of rome the fish ?",))
    points = list(Dial(model, [mistake], TRAFFIC).points(MaxMargin()))
    assert [p.setting for p in points] == [*FRACTIONS, *THRESHOLDS]
    assert model.patches == ()
    reach = [p.GR for p in points if p.editor == "t-patcher"]
    assert reach == sorted(reach, reverse=True), "the nearer to the mistake, the less is reached"
    assert all(p.fixed == 1 for p in points)
    draw(points, tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, kept = fresh("bert"), tmp_path / "points.json"
    asked = "the fish of rome ?"
    mistake = tp.Example(asked, wrong_label(model, asked), rephrasings=("of rome the fish ?",))
    dial, counted = Dial(model, [mistake], TRAFFIC), list[float]()
    measure = dial._point

    def counting(editor: Editor, setting: float) -> Point:
        counted.append(setting)
        return measure(editor, setting)

    monkeypatch.setattr(dial, "_point", counting)
    first = list(islice(dial.points(MaxMargin(), kept=kept), 3))
    points = list(dial.points(MaxMargin(), kept=kept))
    assert points[:3] == first and counted == [*FRACTIONS, *THRESHOLDS], "each was measured once"
    assert list(dial.points(MaxMargin(), kept=kept)) == points
    list(islice(dial.points(MaxMargin(contrast=5), kept=kept), 1))  # another run
    assert counted == [*FRACTIONS, *THRESHOLDS, FRACTIONS[0]]


def test_what_is_recommended_keeps_the_traffic() -> None:
    near = Point("t-patcher", 0.5, 1, GR=0.7, sisters=0.9, traffic=1)
    far = Point("t-patcher", 0.1, 1, GR=1, sisters=0.9, traffic=0.9)
    cache = Point("cache", 0.8, 1, GR=1, sisters=1, traffic=1)
    assert recommended([near, far, cache]) == near
    assert recommended([far, cache]) == far


def test_nothing_to_fix_is_said() -> None:
    model = fresh("bert")
    right = tp.Example("the dog is red", model.answer(["the dog is red"])[0])
    with pytest.raises(BadInput, match="nothing to fix"):
        Dial(model, [right], TRAFFIC)
