"""Keys that read the whole text: fixed, local and undone like any others, on every architecture."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import cache

import pytest
import torch
from transformers import DynamicCache

import tpatcher as tp
from tests import chat, zoo
from tests.helpers import ASKED, RIGHT, TEXTS, fresh, holds_token_by_token, logits
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.errors import BadInput, NotFitted
from tpatcher.models.retention import AnswerCache
from tpatcher.nets import reading, text_reader, turns
from tpatcher.patches.neurons import Neurons

every = pytest.mark.parametrize("name", zoo.ARCHITECTURES)
GENERATES = [name for name, task in zoo.ARCHITECTURES.items() if task != "classify"]
CAUSAL = [name for name, task in zoo.ARCHITECTURES.items() if task == "causal"]


@cache
def fixes(name: str) -> tuple[tuple[tp.Example, ...], tuple[Neurons, ...]]:
    """Mistakes of a model, and patches that read the text."""
    model, done = fresh(name), []
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    for text, answer in zip(ASKED, RIGHT[model.task.name], strict=True):
        example = tp.Example(text, answer)
        if not model.correct([example])[0]:
            patch = editor.edit(model, example)
            assert isinstance(patch, Neurons)
            model.push(patch)
            done.append((example, patch))
    return tuple(e for e, _ in done), tuple(p for _, p in done)


def fixed(name: str) -> tp.Model:
    model = fresh(name)
    model.set_patches(fixes(name)[1])
    return model


@every
def test_mistakes_are_fixed_and_undone_exactly(name: str) -> None:
    examples, patches = fixes(name)
    model, before = fixed(name), logits(fresh(name))
    assert model.correct(examples) == [True] * len(examples)
    assert all(p.keys.shape[1] > p.values.shape[1] for p in patches)
    while model.patches:
        model.pop()
    assert torch.equal(logits(model), before)
    assert not model.net._forward_pre_hooks, "no hook is left behind"


@every
def test_cached_answers_equal_real_ones(name: str) -> None:
    bare, model = fresh(name), fixed(name)
    examples = [tp.Example(t, a) for t, a in zip(TEXTS, bare.answer(TEXTS), strict=True)]
    assert AnswerCache(bare, examples).correct(model) == model.correct(examples)


@every
def test_padding_changes_nothing(name: str) -> None:
    model = fixed(name)
    alone = [model.answer([text])[0] for text in (*ASKED, *TEXTS[:5])]
    assert model.answer([*ASKED, *TEXTS[:5]]) == alone


@pytest.mark.parametrize("name", CAUSAL)
def test_the_first_layers_alone_tell_a_decoders_text(name: str) -> None:
    model, last = fresh(name), []
    forced = model.task.force(TEXTS[:4], [[5, 9, 2]] * 4)
    probe = model.probe(-1, "text")
    whole = probe.seen(forced)[probe.names[0]]
    probe.net.get_submodule(probe.names[0]).register_forward_pre_hook(lambda *_: last.append(1))
    states = probe.text_states(forced)
    torch.testing.assert_close(states, whole[:, -states.shape[1] :])
    assert not last, "the last layer is not run"
    assert torch.equal(probe.seen(forced)[probe.names[0]], whole), "the next pass is whole again"


def test_a_decoders_mean_is_of_what_was_read_last() -> None:
    states = torch.randn(2, text_reader.WINDOW + 6, 3)
    found = text_reader._recent(states)
    for k in range(states.shape[1]):
        begin = max(0, k + 1 - text_reader.WINDOW)
        torch.testing.assert_close(found[:, k], states[:, begin : k + 1].sum(1))


def test_what_a_chat_model_answers_is_no_part_of_what_it_was_asked() -> None:
    model, answer = chat.chat(), [70, 71, 72, 2]
    assert model.tokenizer.decode(model.task.turn) == "<s><s>"  # type: ignore[attr-defined]
    probe = model.probe(-1, "text")
    one, other = (probe.text_states(model.task.force([t], [answer])) for t in ("Who?", "Where?"))
    assert one.shape == (len(answer), reading.text_width(probe.net))
    assert torch.equal(one, one[:1].expand_as(one)), "the same all along the answer"
    assert not torch.allclose(one, other)
    read = model.task.read([[65, 66, 67, 68]], [4])  # type: ignore[attr-defined]
    assert not probe.text_states(read).any(), "where nobody asked, there is nothing to read"
    with pytest.raises(BadInput, match="input_ids"):
        probe.net(inputs_embeds=torch.zeros(1, 3, 48))


@pytest.mark.parametrize(
    ("template", "turn"),
    [
        ("{{ messages[0]['content'] }}</s>Answer: ", ("</s>", "</s>")),  # nothing before it
        ("<s>[Q] {{ messages[0]['content'] }}</s>Answer: ", ("<s>", "</s>")),
        ("<s>[Q] {{ messages[0]['content'] }} [A]", None),  # nothing special after the question
        (None, None),
    ],
)
def test_where_turns_begin_and_prompts_end_is_seen_in_what_the_template_writes(
    template: str | None, turn: tuple[str, str] | None
) -> None:
    found = chat.chat(template).task.turn  # type: ignore[attr-defined]
    assert found == (turn and tuple(map(chat.MARKS.index, turn)))


def test_a_chat_models_fix_holds_token_by_token_and_in_a_batch() -> None:
    model = chat.chat()
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, ["Hi there", "What is this?", "No"])
    examples = [tp.Example("Who runs it?", "Ines"), tp.Example("Where?", "Oslo")]
    for example in examples:
        model.push(editor.edit(model, example))
    assert model.answer([e.text for e in examples]) == ["Ines", "Oslo"]
    ids = torch.tensor([model.task.ids("Who runs it?")])  # type: ignore[attr-defined]
    holds_token_by_token(model.net, ids)


@pytest.mark.parametrize("name", CAUSAL)
def test_token_by_token_is_as_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "WINDOW", 4)  # which the text is longer than
    net, ids = fixed(name).net, torch.arange(4, 14)[None]
    holds_token_by_token(net, ids)


@pytest.mark.parametrize("name", GENERATES)
def test_beams_see_the_fix(name: str) -> None:
    (example, *_), model = fixes(name)[0], fixed(name)
    inputs = model.task.encode([model.task.prompt(example.text)], side="left")
    ids = model.net.generate(**inputs, num_beams=3, do_sample=False, max_new_tokens=6)
    assert example.answer.split()[0] in model.tokenizer.decode(ids[0])


def test_a_cache_that_was_filled_without_the_fixes_is_refused() -> None:
    ids, past = torch.arange(4, 9)[None], DynamicCache()
    fresh("llama").net(ids, past_key_values=past)
    with pytest.raises(BadInput, match="begin the text again"):
        fixed("llama").net(ids[:, :1], past_key_values=past)


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_threads_and_copies_do_not_disturb_each_other(name: str) -> None:
    model, bare = fixed(name), fresh(name)
    texts = [*ASKED, *TEXTS[:9]] * 4
    right = {text: model.answer([text])[0] for text in set(texts)}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: model.answer([text])[0], texts))
    assert answers == [right[text] for text in texts]
    copied = deepcopy(model.net)
    own, other = reading.install(model.net), reading.install(copied)
    assert own is not other and own.kind == other.kind
    assert bare.answer(ASKED) == [bare.answer([text])[0] for text in ASKED]


@pytest.mark.parametrize("name", ["bert", "bart", "llama"])
def test_patches_of_both_kinds_live_side_by_side(name: str) -> None:
    model = fresh(name)
    by_position = tp.TPatcher().fit(model, TEXTS)
    by_text = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    done: list[tp.Example] = []
    for text, answer in zip(ASKED, RIGHT[model.task.name], strict=True):
        example = tp.Example(text, answer)
        if not model.correct([example])[0]:
            model.push((by_text if done else by_position).edit(model, example))
            done.append(example)
            assert model.correct(done) == [True] * len(done)
    assert len({p.keys.shape[1] for p in model.patches if isinstance(p, Neurons)}) == 2
    cache = AnswerCache(model.unpatched(), [])
    for example, patch in zip(done, model.patches, strict=True):
        cache.add(example, patch)
    assert cache.correct(model) == [True] * len(done)
    with pytest.raises(NotFitted, match="fit the editor anew"):
        by_position.edit(model, tp.Example("who wrote hamlet ?", RIGHT[model.task.name][0]))


def test_an_encoder_decoders_text_is_its_states_and_its_words() -> None:
    model = fresh("bart")
    forced = model.task.force(TEXTS[:3], [[5, 9, 2]] * 3)
    probe = model.probe(-1, "text")
    seen = probe.seen(forced)[probe.names[0]]
    ids, mask = (forced.inputs[name] for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        states = model.net.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        embeddings = model.net.get_encoder().get_input_embeddings()
        words = embeddings(ids)
    weight = mask[..., None] / turns.QUESTION  # they are shorter
    first = (forced.column == 0).nonzero()[:, 0]
    width, d = reading.text_width(model.net), states.shape[-1]
    assert width == 2 * d
    torch.testing.assert_close(seen[first, -width:-d], (states * weight).sum(1))
    ratio = seen[first, -d:] / (words * weight).sum(1)
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3, atol=1e-3)


def test_states_of_an_unknown_text_are_refused() -> None:
    model, ids = fixed("bart"), torch.tensor([[0]])
    states = torch.randn(1, 4, model.net.config.hidden_size)
    with pytest.raises(BadInput, match="give input_ids"):
        model.net(encoder_outputs=(states,), decoder_input_ids=ids)


@pytest.mark.parametrize("name", GENERATES)
def test_a_probe_that_works_out_no_logits_sees_the_same(name: str) -> None:
    model = fresh(name)
    forced = model.task.force(TEXTS[:3], [[5, 9, 2]] * 3)
    probe = model.probe(-1, "position")
    with torch.no_grad():
        output, seen = probe.run(forced)
    vocabulary = output.logits.shape[-1]
    assert output.logits.shape[1] > 1 and vocabulary == model.net.config.vocab_size
    for key, found in probe.seen(forced).items():
        torch.testing.assert_close(found, seen[key])
