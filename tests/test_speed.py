"""The figures of docs/speed.md can be measured; here on tiny models, so the values say nothing."""

import pytest
import torch
import transformers as tf

from speed import figures, nets
from tests import chat
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.models.model import Model


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A classifier in the place of BERT-base."""
    torch.manual_seed(0)
    config = tf.BertConfig(
        vocab_size=30_522,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        id2label={0: "no", 1: "yes", 2: "maybe"},
        pad_token_id=0,
    )
    net = nets._spread(tf.BertForSequenceClassification(config))
    model = Model(net, nets.tokenizer(30_522), "classify")
    monkeypatch.setattr(nets, "classifier", lambda: model)
    monkeypatch.setattr(nets, "memory", lambda of, n: Memory.from_queries(nets.queries(of, 60)))
    return model


@pytest.mark.usefixtures("tiny")
def test_edits_are_measured_against_the_paper_whose_model_is_frozen() -> None:
    frozen, whole, answer, each = figures.editing("classification", n=4)
    assert "edit_all" in each.figure
    assert frozen.figure == "the paper's procedure ÷ our edit, classification"
    assert "backward through the whole model" in whole.figure
    assert "÷ one answer" in answer.figure
    assert min(frozen.value, whole.value, answer.value, each.value) > 0


def test_answers_and_retention_are_measured(tiny: Model) -> None:
    [answers] = figures.answering(10, 9.0, rounds=2)
    [retention] = figures.retention(n=60, timed=20)
    assert answers.value > 0 and retention.value > 0
    assert "of 60 really run" in retention.about
    assert tiny.patches == ()


@pytest.mark.usefixtures("tiny")
def test_edits_with_contrast_are_measured_against_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = nets.memory_of_texts
    monkeypatch.setattr(nets, "memory_of_texts", lambda of, n: made(of, 60))
    (figure,) = figures.editing_by_text("classification", n=4)
    assert figure.value > 0
    assert "3 of 3 fixed" in figure.about
    assert "contrast {}" not in figure.about


@pytest.mark.parametrize("preset", ["fast", "text"])
def test_edits_of_a_chat_model_are_measured_against_one_answer(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = nets.memory_of_chat
    model = Model(chat.net(), chat.tokenizer(), "causal", max_new_tokens=nets.ANSWERED)
    monkeypatch.setattr(nets, "decoder", lambda: model)
    monkeypatch.setattr(nets, "memory_of_chat", lambda of, n, preset: made(of, 60, preset))
    (figure,) = figures.editing_chat(preset, n=3)
    assert figure.figure.endswith(preset)
    assert figure.value > 0
    assert "2 of 2 fixed" in figure.about
