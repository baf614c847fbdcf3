"""Texts in and answers out: labels, decoding rules, templates, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as tf

import tpatcher as tp
from tests import zoo
from tests.test_rules import TEXTS, fresh
from tpatcher.errors import BadInput, NotFixed, UnsupportedArchitecture


def test_labels_by_name_or_index() -> None:
    model = fresh("bert")
    said = model.answer(["who wrote hamlet ?"])[0]
    index = model.task.target("", said)[0]
    for answer in (said, said.upper(), f" {said} ", str(index)):
        assert model.correct([tp.Example("who wrote hamlet ?", answer)]) == [True]


def test_an_unknown_label_names_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match=r"unknown label 'yess'. Did you mean 'yes'\? .*no, yes, maybe"
    ):
        fresh("bert").correct([tp.Example("who ?", "yess")])


def test_a_single_logit_answers_yes_or_no() -> None:
    net = zoo.net("bert", id2label={0: "LABEL_0"})
    model = tp.Model(net, zoo.tokenizer("classify"), "classify")
    said = model.answer(TEXTS)
    wrong = tp.Example(
        "the capital of peru", str(1 - int(model.answer(["the capital of peru"])[0]))
    )
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, wrong))
    assert model.correct([wrong]) == [True]
    assert model.answer(TEXTS) == said


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_other_heads_are_refused(kind: str) -> None:
    labels = {0: "x"} if kind == "regression" else {0: "x", 1: "y"}
    net = zoo.net("bert", problem_type=kind, id2label=labels)
    with pytest.raises(UnsupportedArchitecture):
        tp.Model(net, zoo.tokenizer("classify"), "classify")


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_an_empty_text_is_refused(name: str) -> None:
    model = fresh(name)
    with pytest.raises(BadInput, match="empty text"):
        model.answer([" "])
    editor = tp.TPatcher().fit(model, TEXTS)
    with pytest.raises(BadInput, match="empty text"):
        editor.edit(model, tp.Example("", "yes"))


def test_one_text_must_be_in_a_list() -> None:
    with pytest.raises(BadInput, match="list"):
        fresh("bert").answer("who ?")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_a_text_beyond_the_context_is_cut_with_a_warning(name: str) -> None:
    model = fresh(name)
    with pytest.warns(UserWarning, match="cut to the model's"):
        assert len(model.answer(["rome " * 100])) == 1


def test_batches_and_padding_do_not_change_answers() -> None:
    for name in ("bert", "bart", "llama", "gpt2"):
        model = fresh(name)
        together = model.answer(TEXTS[:12], batch=12)
        assert together == [model.answer([text])[0] for text in TEXTS[:12]]


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_an_answer_the_tokenizer_cannot_express(name: str) -> None:
    with pytest.raises(NotFixed, match="cannot express"):
        fresh(name).task.target("who ?", "Zanzibar")


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_an_empty_or_an_endless_answer(name: str) -> None:
    task = fresh(name).task
    with pytest.raises(NotFixed, match="empty"):
        task.target("who ?", " ")
    with pytest.raises(NotFixed, match="max_new_tokens"):
        task.target("who ?", "the a of in on is was were are who")


def test_a_forbidden_answer_is_not_fixed() -> None:
    net = zoo.net("bart")
    paris = zoo.tokenizer("seq2seq").convert_tokens_to_ids("paris")
    net.generation_config.bad_words_ids = [[paris]]
    model = tp.Model(net, zoo.tokenizer("seq2seq"), "seq2seq")
    editor = tp.TPatcher().fit(model, TEXTS)
    with pytest.raises(NotFixed, match="forbids the answer 'paris'"):
        editor.edit(model, tp.Example("the capital of france ?", "paris"))
    lima = tp.Example("the capital of peru ?", "lima")
    model.push(editor.edit(model, lima))
    assert model.correct([lima]) == [True]


def test_forced_tokens_are_never_patched() -> None:
    net = zoo.net("mbart")
    net.generation_config.forced_bos_token_id = 1  # <s>, as the tokenizer begins an answer
    model = tp.Model(net, zoo.tokenizer("seq2seq"), "seq2seq")
    example = tp.Example("the capital of france ?", "paris")
    patch = tp.TPatcher().fit(model, TEXTS).edit(model, example)
    model.push(patch)
    assert model.correct([example]) == [True]
    assert len(patch.keys) == 2  # type: ignore[attr-defined]  # "paris" and the end, not "<s>"


def test_a_forced_end_at_the_length_of_the_config() -> None:
    net = zoo.net("bart")
    net.generation_config.update(max_new_tokens=None, max_length=6, forced_eos_token_id=2)
    model = tp.Model(net, zoo.tokenizer("seq2seq"), "seq2seq")
    text = "the capital of peru"
    plain = net.generate(**model.task.encode([text]), do_sample=False)[0, 1:].tolist()
    assert model.task.predict(net, [text])[0] == model.task.until_end(plain)  # type: ignore[attr-defined]
    longest = tp.Example(text, "one two three")  # <s>, three words and the end
    patch = tp.TPatcher().fit(model, TEXTS).edit(model, longest)
    assert len(patch.tensors["keys"]) <= 4, "the end is forced there, so it needs no neuron"
    model.push(patch)
    assert model.answer([text]) == [longest.answer]


def test_the_generation_configs_own_rules_apply() -> None:
    """With a repetition penalty the greedy answer is another one, and still gets fixed."""
    net = zoo.net("gpt2")
    net.generation_config.repetition_penalty = 1.5
    model = tp.Model(net, zoo.tokenizer("causal"), "causal")
    example = tp.Example("what is the river of rome ?", "the red river")
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, example))
    assert model.correct([example]) == [True]


def test_chat_template() -> None:
    tokenizer = zoo.tokenizer("causal").__class__(
        tokenizer_object=zoo.tokenizer("causal")._tokenizer, pad_token="<pad>", eos_token="</s>",
        bos_token="<s>", unk_token="<unk>", model_max_length=64,
    )  # fmt: skip
    tokenizer.chat_template = (
        "{% for m in messages %}who : {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}what : {% endif %}"
    )
    model = tp.Model(zoo.net("llama"), tokenizer, "causal")
    assert model.task.prompt("the capital of peru") == "who : the capital of peru what : "  # type: ignore[attr-defined]
    example = tp.Example("the capital of peru", "lima")
    model.push(tp.TPatcher().fit(model, TEXTS[:20]).edit(model, example))
    assert model.correct([example]) == [True]


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


def saved(
    tmp_path: Path, name: str, change: Callable[[tf.PreTrainedModel], None] | None = None
) -> Path:
    net = zoo.net(name)
    if change:
        change(net)
    net.save_pretrained(tmp_path)
    zoo.tokenizer(zoo.ARCHITECTURES[name]).save_pretrained(tmp_path)
    return tmp_path


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


def test_a_pooling_head_runs_the_whole_model() -> None:
    net = zoo.net("modernbert", classifier_pooling="mean")
    with pytest.warns(UserWarning, match="whole model will be run"):
        model = tp.Model(net, zoo.tokenizer("classify"), "classify")
    assert model.tail is None
    said = model.answer(["who wrote hamlet ?"])[0]
    example = tp.Example("who wrote hamlet ?", next(a for a in ("yes", "no") if a != said))
    model.push(tp.TPatcher().fit(model, TEXTS).edit(model, example))
    assert model.correct([example]) == [True]
