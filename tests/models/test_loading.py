"""Loading a model: its task is found, and what cannot be used is refused."""

from pathlib import Path

import pytest
import torch
import transformers as tf

import tpatcher as tp
from tests import zoo
from tests.helpers import bringing_code, fresh, saved, says_yes
from tpatcher.errors import BadInput, UnsupportedArchitecture


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_load_finds_the_task(tmp_path: Path, name: str) -> None:
    model = tp.load(saved(tmp_path, name))
    assert model.task.name == zoo.ARCHITECTURES[name]
    assert model.answer(["who wrote hamlet ?"]) == fresh(name).answer(["who wrote hamlet ?"])


def test_load_of_what_is_not_there() -> None:
    with pytest.raises(BadInput, match="cannot load 'no/such-model'"):
        tp.load("no/such-model")


def test_load_with_another_task(tmp_path: Path) -> None:
    path = saved(tmp_path, "bert")
    with pytest.raises(BadInput, match="unknown task 'translate'"):
        tp.load(path, task="translate")


def test_load_of_a_body_without_a_head(tmp_path: Path) -> None:
    zoo.net("bert").bert.save_pretrained(tmp_path)
    zoo.tokenizer("classify").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedArchitecture, match="BertModel"):
        tp.load(tmp_path)
    with pytest.raises(BadInput, match="not trained to classify"):
        tp.load(tmp_path, task="classify")


def test_nan_weights_are_refused(tmp_path: Path) -> None:
    def spoil(net: tf.PreTrainedModel) -> None:
        net.classifier.weight.data[0, 0] = torch.nan

    with pytest.raises(BadInput, match=r"classifier.weight holds NaN"):
        tp.load(saved(tmp_path, "bert", spoil))


def test_code_that_comes_with_a_model_is_never_run_nor_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, asked = bringing_code(tmp_path), says_yes(monkeypatch)
    with pytest.raises(BadInput):
        tp.load(tmp_path)
    assert asked == [] and not ran.exists()
