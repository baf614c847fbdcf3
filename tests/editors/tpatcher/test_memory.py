"""The memory: what it holds, how it whitens, and that it survives the disk."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests.helpers import TEXTS, fresh
from tpatcher.editors.tpatcher import memory as memories
from tpatcher.errors import BadInput, Damaged, WrongBase
from tpatcher.models.traces import traces


def test_texts_are_followed_along_the_models_own_answers() -> None:
    for name in ("bert", "bart"):
        model = fresh(name)
        memory = tp.Memory.collect(model, TEXTS)
        said = (
            sum(len(s) for s in model.task.predict(model.net, TEXTS))
            if name == "bart"
            else len(TEXTS)
        )
        assert len(memory) == said
        assert memory.states is not None
        assert memory.answers is not None
        whole = torch.cat([seen.queries for _, _, seen in traces(model, TEXTS)])
        assert torch.equal(memory.queries, whole)
        for row in range(0, len(memory), 7):
            assert memory.text_of(row) in TEXTS
            assert row in memory.rows_of([memory.text_of(row)])


def test_examples_are_followed_along_their_right_answers() -> None:
    model = fresh("bart")
    memory = tp.Memory.collect(model, [tp.Example("who wrote hamlet ?", "william shakespeare")] * 3)
    assert len(memory) == 3 * 4  # <s> william shakespeare </s>


def test_whitening_makes_the_memory_round() -> None:
    torch.manual_seed(0)
    queries = torch.randn(5000, 6) @ torch.diag(torch.arange(1.0, 7)) + 3
    memory = tp.Memory.from_queries(queries)
    white = memory.whiten(queries)
    torch.testing.assert_close(white.mean(0), torch.zeros(6).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(white.T @ white / 5000, torch.eye(6).double(), atol=0.02, rtol=0)
    direction = torch.randn(1, 6).double()
    key = memory.key(direction)
    response = queries.double() @ key.T
    torch.testing.assert_close(response - response.mean(), white @ direction.T - 0.0)


def test_a_singular_covariance_is_no_obstacle() -> None:
    queries = torch.randn(20, 1) * torch.ones(1, 8)
    assert tp.Memory.from_queries(queries).factor.isfinite().all()


@pytest.mark.parametrize(("texts", "ridge"), [(7, 1.0), (8, 1e-3)])
def test_what_few_texts_say_of_each_other_counts_less(texts: int, ridge: float) -> None:
    queries, states = torch.randn(40, 6), torch.randn(texts, 4)
    index = torch.arange(40) % texts
    memory = tp.Memory(queries, text_states=states, text_index=index)
    beside = states[index].double()
    variance = (beside - beside.mean(0)).square().mean(0)
    found = (memory.factor @ memory.factor.T).diagonal()[6:]
    torch.testing.assert_close(found, variance + ridge * variance.mean(), rtol=1e-4, atol=1e-4)


def test_blocks_give_what_one_product_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "BLOCK", 7)
    queries, keys = torch.randn(50, 4), torch.randn(3, 4)
    memory = tp.Memory.from_queries(queries.half())
    torch.testing.assert_close(memory.respond(keys), keys @ queries.half().float().T)


@pytest.mark.parametrize("map_above", [0, 1 << 30])
def test_save_and_load(tmp_path: Path, map_above: int) -> None:
    model, texts, others = fresh("bart"), TEXTS[:10], TEXTS[10:12]
    memory = tp.Memory.collect(model, texts, reads="text", map_above=map_above, held_out=others)
    memory.save(tmp_path)
    back = tp.Memory.load(tmp_path, map_above=map_above)
    for name in memories.ARRAYS:
        assert torch.equal(getattr(back, name), getattr(memory, name))
    assert back.texts == memory.texts
    assert back.split == len(back)
    memory.held_out = None
    memory.save(tmp_path)
    back = tp.Memory.load(tmp_path)
    assert back.split == len(back) - len(back) // 10


@pytest.mark.parametrize("name", ["bert", "bart", "llama"])
def test_the_state_of_a_text_is_held_once(name: str) -> None:
    model = fresh(name)
    memory = tp.Memory.collect(model, TEXTS, reads="text")
    whole = torch.cat([seen.queries for _, _, seen in traces(model, TEXTS, reads="text")])
    assert memory.width == whole.shape[1] > memory.queries.shape[1]
    assert torch.equal(memory.rows(torch.arange(len(memory))), whole)
    assert memory.text_states is not None
    if name == "bart":  # all of an answer have the same one
        assert len(memory.text_states) == len(set(TEXTS)) < len(memory)
    keys = torch.randn(3, memory.width)
    torch.testing.assert_close(memory.respond(keys), keys @ whole.T, rtol=1e-4, atol=1e-4)
    narrow = keys[:, : memory.queries.shape[1]]
    torch.testing.assert_close(memory.respond(narrow), memory.of_positions().respond(narrow))
    torch.testing.assert_close(memory.mean, whole.double().mean(0))


@pytest.mark.parametrize("about", [{"reading": 3}, {"reading": None, "text_width": 9}])
def test_a_memory_of_texts_that_were_read_otherwise_is_refused(
    tmp_path: Path, about: dict[str, Any]
) -> None:
    memory = tp.Memory.collect(fresh("bart"), TEXTS, reads="text")
    memory.save(tmp_path)
    back = tp.Memory.load(tmp_path)
    assert torch.equal(back.rows(torch.arange(len(back))), memory.rows(torch.arange(len(memory))))
    known = json.loads((tmp_path / "memory.json").read_bytes())
    (tmp_path / "memory.json").write_text(json.dumps({**known, **about}))
    with pytest.raises(tp.errors.BadInput, match="collect it again"):
        tp.Memory.load(tmp_path)


def test_float16_on_request() -> None:
    memory = tp.Memory.collect(fresh("bert"), TEXTS, dtype=torch.float16)
    assert memory.queries.dtype == torch.float16


def test_what_is_no_memory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs texts"):
        tp.Memory.collect(fresh("bert"), [])
    with pytest.raises(BadInput, match="at least 2"):
        tp.Memory.from_queries(torch.zeros(1, 4))
    with pytest.raises(BadInput, match=r"no memory.json"):
        tp.Memory.load(tmp_path)
    memory = tp.Memory.from_queries(torch.randn(9, 4))
    memory.save(tmp_path)
    (tmp_path / "queries.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(Damaged):
        tp.Memory.load(tmp_path)


def test_a_memory_names_its_base(tmp_path: Path) -> None:
    model = fresh("bert")
    tp.Memory.collect(model, TEXTS).save(tmp_path)
    saved = tp.Memory.load(tmp_path)
    assert saved.base == saved.of_positions().base == model.base.fingerprint
    assert tp.TPatcher().fit(model.twin(), saved).memory is not None
    other = fresh("bert")
    with torch.no_grad():
        other.net.get_input_embeddings().weight.add_(0.1)
    other = tp.Model(other.net, other.tokenizer, other.task.name)
    with pytest.raises(WrongBase, match=model.base.fingerprint):
        tp.TPatcher().fit(other, saved)


def test_a_memory_that_is_not_finite_is_damaged() -> None:
    queries = torch.randn(20, 4)
    queries[3, 2] = float("nan")
    with pytest.raises(Damaged, match="not finite"):
        tp.Memory.from_queries(queries).check_finite()
