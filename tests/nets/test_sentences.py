"""A sentence encoder beside a net: keys read its vector of the text, in any batch and beam."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import pytest
import torch

import tpatcher as tp
from tests import chat, zoo
from tests.helpers import ASKED, RIGHT, TEXTS, fresh, holds_token_by_token, saved
from tpatcher.editors.tpatcher import MaxMargin
from tpatcher.errors import BadInput, NotFitted, WrongBase
from tpatcher.models.retention import AnswerCache
from tpatcher.nets import reading
from tpatcher.nets.text_reader import SentenceReader

several = pytest.mark.parametrize("name", ["bert", "bart", "marian", "t5"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("encoder")
    zoo.net("bert", hidden_size=24).save_pretrained(where)
    zoo.tokenizer("classify").save_pretrained(where)
    return str(where)


def with_encoder(name: str, encoder: str) -> tp.Model:
    task = zoo.ARCHITECTURES[name]
    return tp.Model(zoo.net(name), zoo.tokenizer(task), task, name=name, encoder=encoder)


def fixed(name: str, encoder: str) -> tuple[tp.Model, list[tp.Example]]:
    model, done = with_encoder(name, encoder), []
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, TEXTS)
    for text, answer in zip(ASKED, RIGHT[model.task.name], strict=True):
        example = tp.Example(text, answer)
        if not model.correct([example])[0]:
            model.push(editor.edit(model, example))
            done.append(example)
    assert done
    return model, done


@several
def test_mistakes_are_fixed_and_undone_exactly(name: str, encoder: str) -> None:
    model, done = fixed(name, encoder)
    assert model.correct(done) == [True] * len(done)
    alone = [model.answer([text])[0] for text in (*ASKED, *TEXTS[:8])]
    assert model.answer([*ASKED, *TEXTS[:8]]) == alone, "a batch changes nothing"
    bare = with_encoder(name, encoder)
    examples = [tp.Example(t, a) for t, a in zip(TEXTS, bare.answer(TEXTS), strict=True)]
    assert AnswerCache(bare, examples).correct(model) == model.correct(examples)
    before = fresh(name).answer(TEXTS)
    while model.patches:
        model.pop()
    assert model.answer(TEXTS) == before


def test_keys_read_the_vector_of_the_text_beside_the_models_own(encoder: str) -> None:
    model = with_encoder("bart", encoder)
    own = reading.text_width(fresh("bart").net)
    assert reading.text_width(model.net) == own + 24
    reader = reading.install(model.net)
    assert isinstance(reader, SentenceReader)
    with torch.no_grad():
        inputs = model.task.encode([ASKED[0], "dog"])
        model.net(**inputs, decoder_input_ids=torch.tensor([[2, 3], [2, 3]]))
    read = reader.beside(torch.zeros(2, 2, 5))
    wanted = 24**0.5 * reader.sentences.of([ASKED[0], "dog"])
    for i in range(2):
        assert torch.equal(read[:, i, 5 + own :], wanted)


def test_beams_copies_and_threads_see_the_fix(encoder: str) -> None:
    model, (example, *_) = fixed("bart", encoder)
    inputs = model.task.encode([model.task.prompt(example.text)])
    for net in (model.net, deepcopy(model.net), model.twin().net):
        ids = net.generate(**inputs, num_beams=3, do_sample=False, max_new_tokens=6)
        assert example.answer.split()[0] in model.tokenizer.decode(ids[0])
    texts = [*ASKED, *TEXTS[:9]] * 3
    right = {text: model.answer([text])[0] for text in set(texts)}
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda t: model.answer([t])[0], texts)) == [right[t] for t in texts]


def test_of_a_chat_model_it_is_what_was_asked_last(encoder: str) -> None:
    plain = chat.chat()
    model = tp.Model(plain.net, plain.tokenizer, "causal", encoder=encoder)
    reader, turn = reading.install(model.net), model.task.turn  # type: ignore[attr-defined]
    assert isinstance(reader, SentenceReader)
    ids = [model.task.ids(text) for text in ("Who runs it?", "Where is it?")]  # type: ignore[attr-defined]
    read = []
    for past, part in ((None, ids[0]), (None, [*ids[0], 70, 71, *ids[1], 72])):
        with torch.no_grad():
            model.net(torch.tensor([part]), past_key_values=past)
        read.append(reader.beside(torch.zeros(1, len(part), 5))[0, :, -24:])
    asked = read[0][-1]
    assert asked.any() and not torch.equal(asked, read[1][-1])
    end = max(i for i, token in enumerate(ids[0]) if token == turn[1])
    assert not read[1][:end].any(), "nobody has asked yet"
    for i in range(end, len(ids[0]) + 2):
        assert torch.equal(read[1][i], asked)


def test_a_chat_models_fix_holds_token_by_token_and_in_beams(encoder: str) -> None:
    plain = chat.chat()
    model = tp.Model(plain.net, plain.tokenizer, "causal", encoder=encoder)
    editor = tp.TPatcher(MaxMargin(reads="text")).fit(model, ["Hi there", "What is this?", "No"])
    examples = [tp.Example("Who runs it?", "Ines"), tp.Example("Where?", "Oslo")]
    for example in examples:
        model.push(editor.edit(model, example))
    assert model.answer([e.text for e in examples]) == ["Ines", "Oslo"]
    ids = torch.tensor([model.task.ids("Who runs it?")])  # type: ignore[attr-defined]
    holds_token_by_token(model.net, ids)
    beams = model.twin().net.generate(ids, num_beams=3, do_sample=False, max_new_tokens=6)
    assert "Ines" in model.tokenizer.decode(beams[0])


def test_what_cannot_be_read_is_refused(encoder: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="where that begins and ends"):
        with_encoder("gpt2", encoder)
    with pytest.raises(BadInput, match="cannot load the sentence encoder"):
        with_encoder("bert", str(tmp_path / "nothing"))
    model, _ = fixed("bart", encoder)
    states = fresh("bart").net.get_encoder()(torch.tensor([[5, 6, 7]]))
    states.last_hidden_state += 1
    with pytest.raises(BadInput, match="give input_ids"):
        model.net(encoder_outputs=states, decoder_input_ids=torch.tensor([[2]]))
    with pytest.raises(BadInput, match="no embeds"):
        fixed("bert", encoder)[0].net(inputs_embeds=torch.zeros(1, 3, 32))


def test_fixes_and_memories_fit_no_other_encoder(encoder: str, tmp_path: Path) -> None:
    model, _ = fixed("bart", encoder)
    model.save_patches(tmp_path / "pack")
    saved(tmp_path / "model", "bart")
    again = tp.load(tmp_path / "model", encoder=encoder, patches=tmp_path / "pack")
    assert again.answer(ASKED) == model.answer(ASKED)
    with pytest.raises(WrongBase, match="the same sentence encoder"):
        tp.load(tmp_path / "model", patches=tmp_path / "pack")
    own = tp.TPatcher(MaxMargin(reads="text")).fit(fresh("bart"), TEXTS)
    with pytest.raises(NotFitted, match="fit the editor anew"):
        own.edit(with_encoder("bart", encoder), tp.Example("who wrote hamlet ?", "paris"))
