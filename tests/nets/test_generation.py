"""Answers that are generated: decoding rules, templates, and what cannot be said."""

import pytest

import tpatcher as tp
from tests import zoo
from tests.chat import TEMPLATE, chat
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher.contexts import contexts
from tpatcher.errors import AlreadyRight, BadInput, NotFixed
from tpatcher.patches import from_bytes


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
    tokenizer = zoo.wrapped(zoo.tokenizer("causal")._tokenizer, 64)
    tokenizer.chat_template = (
        "{% for m in messages %}who : {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}what : {% endif %}"
    )
    model = tp.Model(zoo.net("llama"), tokenizer, "causal")
    assert model.task.prompt("the capital of peru") == "who : the capital of peru what : "  # type: ignore[attr-defined]
    example = tp.Example("the capital of peru", "lima")
    model.push(tp.TPatcher().fit(model, TEXTS[:20]).edit(model, example))
    assert model.correct([example]) == [True]


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Who wrote Hamlet?"},
]


def test_a_conversation_is_fixed_like_a_text() -> None:
    model = chat()
    example = tp.Example(TALK, "Bacon")  # type: ignore[arg-type]
    assert model.task.prompt(example.text).endswith("Who wrote Hamlet?</s><s>assistant\n")
    editor = tp.TPatcher().fit(model, tp.Memory.collect(model, ["Ja?", "Nein?"], background=False))
    patch = editor.edit(model, example)
    model.push(patch)
    assert model.answer([example.text]) == ["Bacon"]
    back = from_bytes(patch.to_bytes()).example
    assert back == example and isinstance(back.text, tp.Conversation)
    assert model.correct([back]) == [True]


def test_the_limit_of_answers_is_the_callers() -> None:
    net = zoo.net("gpt2")
    long = "the a of in on is was were are who"
    with pytest.raises(NotFixed, match=r"cut after 8; load .* max_new_tokens=11"):
        tp.Model(net, zoo.tokenizer("causal"), "causal").task.target("what", long)
    model = tp.Model(net, zoo.tokenizer("causal"), "causal", max_new_tokens=12)
    assert len(model.task.target("what", long)) == 11
    with pytest.raises(tp.errors.BadInput, match="classifies"):
        tp.Model(zoo.net("bert"), zoo.tokenizer("classify"), "classify", max_new_tokens=3)


def test_strings_to_stop_at_pass_through() -> None:
    said = chat().answer(["Who?"])[0]
    net = chat().net
    net.generation_config.stop_strings = [said[2]]
    stopped = tp.Model(net, chat().tokenizer, "causal")
    assert stopped.answer(["Who?"]) == [said[: said.index(said[2]) + 1]]


def test_an_answer_that_holds_the_right_one_is_no_mistake() -> None:
    model = fresh("gpt2")
    said = model.answer(["the capital of france ?"])[0]
    example = tp.Example("the capital of france ?", said.split()[0], match="contains")
    assert model.correct([example]) == [True]
    with pytest.raises(AlreadyRight):
        tp.TPatcher().fit(model, TEXTS).edit(model, example)
    with pytest.raises(BadInput, match="unknown match"):
        tp.Example("who ?", "paris", match="nearly")


def test_a_template_that_refuses_is_named() -> None:
    refusal = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    )
    model = chat(refusal + TEMPLATE)
    with pytest.raises(BadInput, match="template refuses this: no system"):
        model.answer([tp.Conversation(TALK)])
    assert len(contexts(model, "Who?")) == 2, "the instruction and the earlier turn are left"
