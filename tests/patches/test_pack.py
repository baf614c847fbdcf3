"""Packs: saved, loaded, refused when they do not fit or are damaged."""

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save as save_tensors

import tpatcher as tp
from tests.helpers import edited, fresh, logits, wearing
from tests.store.made import patch
from tpatcher.errors import BadInput, Damaged, StaleHead, TPatcherError, WrongBase
from tpatcher.patches import from_bytes, pack
from tpatcher.patches.cached_answer import CachedAnswer
from tpatcher.patches.codebook import Codebook
from tpatcher.patches.neurons import Neurons
from tpatcher.store.store import Store


def test_save_and_load(tmp_path: Path) -> None:
    examples, patches = edited("bart")
    model = wearing("bart", *patches)
    model.save_patches(tmp_path)
    other = fresh("bart")
    other.set_patches(pack.read(tmp_path, other.base))
    assert torch.equal(logits(other), logits(model))
    assert [p.example for p in other.patches] == list(examples)
    card = (tmp_path / "README.md").read_text()
    assert examples[0].text in card
    files = {"README.md", "patches.json", ".lock"}
    assert len({f.name for f in tmp_path.iterdir()} - files) == 1
    model.pop()
    model.save_patches(tmp_path)  # again: the old tensors are gone
    assert len({f.name for f in tmp_path.iterdir()} - files) == 1
    assert len(pack.read(tmp_path, other.base)) == len(patches) - 1


def test_load_puts_a_pack_on(tmp_path: Path) -> None:
    from tests.helpers import saved

    examples, patches = edited("bert")
    wearing("bert", *patches).save_patches(tmp_path / "fixes")
    (tmp_path / "model").mkdir()
    model = tp.load(saved(tmp_path / "model", "bert"), patches=tmp_path / "fixes")
    assert model.correct([examples[-1]]) == [True]


def test_texts_can_be_left_out(tmp_path: Path) -> None:
    examples, patches = edited("bert")
    wearing("bert", *patches).save_patches(tmp_path, text=False)
    everything = b"".join(f.read_bytes() for f in tmp_path.iterdir())
    assert examples[0].text.encode() not in everything
    other = fresh("bert")
    other.set_patches(pack.read(tmp_path, other.base))
    assert [p.id for p in other.patches] == [p.id for p in patches]
    assert torch.equal(logits(other), logits(wearing("bert", *patches)))


def test_another_base_model_is_refused(tmp_path: Path) -> None:
    from tests import zoo

    wearing("bert", *edited("bert")[1]).save_patches(tmp_path)
    other = tp.Model(zoo.net("bert", seed=1), zoo.tokenizer("classify"), "classify", name="other")
    with pytest.raises(WrongBase, match=r"'bert' .*'other'"):
        pack.read(tmp_path, other.base)


def test_a_patch_of_another_width_is_refused() -> None:
    from tests import zoo

    wide = {"hidden_size": 64, "intermediate_size": 48}
    other = tp.Model(zoo.net("bert", **wide), zoo.tokenizer("classify"), "classify")
    with pytest.raises(WrongBase, match="width 32"):
        other.push(edited("bert")[1][0])
    assert other.patches == ()


def test_damage_is_named(tmp_path: Path) -> None:
    wearing("bert", *edited("bert")[1]).save_patches(tmp_path)
    tensors = next(tmp_path.glob("*.safetensors"))
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Damaged, match="checksum"):
        pack.read(tmp_path)
    tensors.unlink()
    with pytest.raises(Damaged, match="not there"):
        pack.read(tmp_path)
    (tmp_path / "patches.json").write_text("{")
    with pytest.raises(Damaged, match=r"patches.json"):
        pack.read(tmp_path)
    with pytest.raises(BadInput, match="not a pack"):
        pack.read(tmp_path / "nowhere")


def test_a_name_in_the_index_cannot_leave_the_pack(tmp_path: Path) -> None:
    wearing("bert", *edited("bert")[1]).save_patches(tmp_path)
    index = json.loads((tmp_path / "patches.json").read_text())
    index["tensors"]["file"] = "../secret.safetensors"
    (tmp_path / "patches.json").write_text(json.dumps(index))
    with pytest.raises(Damaged, match="not there"):
        pack.read(tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 100_000), st.integers(0, 255), st.booleans())
def test_spoiled_bytes_are_refused_or_harmless(at: int, byte: int, cut: bool) -> None:
    blob = edited("bert")[1][0].to_bytes()
    at %= len(blob)
    spoiled = blob[:at] if cut else blob[:at] + bytes([byte]) + blob[at + 1 :]
    with suppress(TPatcherError):
        assert isinstance(from_bytes(spoiled), Neurons)


def test_writers_that_take_turns_lose_nothing(tmp_path: Path) -> None:
    base, failed = pack.Base("bert", "f"), list[BaseException]()

    def add(me: int) -> None:
        try:
            for n in range(5):
                with pack.lock(tmp_path):
                    seen = pack.index(tmp_path)
                    there = pack.read(tmp_path, base) if seen else []
                    pack.write(tmp_path, [*there, patch(10 * me + n)], base, replacing=seen)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=[me]) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    wanted = {patch(10 * me + n).id for me in range(4) for n in range(5)}
    assert {p.id for p in pack.read(tmp_path, base)} == wanted
    assert len(list(tmp_path.glob("patches-*"))) == 1


def test_writers_without_turns_and_readers_never_meet_a_broken_pack(tmp_path: Path) -> None:
    base, ended, failed = pack.Base("bert", "f"), threading.Event(), list[BaseException]()
    pack.write(tmp_path, [patch(0)], base)

    def write(me: int) -> None:
        try:
            for n in range(40):
                pack.write(tmp_path, [patch(100 * me + n)], base)
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        try:
            while not ended.is_set():
                assert len(pack.read(tmp_path, base)) == 1
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=[me]) for me in (1, 2)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    assert failed == []
    assert pack.read(tmp_path, base)[0].id in {patch(139).id, patch(239).id}


def test_a_pack_that_was_changed_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    base = pack.Base("bert", "f")
    seen = pack.write(tmp_path, [patch(1)], base, replacing=b"")
    theirs = pack.write(tmp_path, [patch(2)], base, replacing=seen)
    with pytest.raises(StaleHead, match=f"new: {patch(2).id}; gone: {patch(1).id}"):
        pack.write(tmp_path, [patch(1), patch(3)], base, replacing=seen)
    with pytest.raises(StaleHead, match="changed since it was read"):
        pack.write(tmp_path, [patch(1)], base, replacing=b"")
    assert [p.id for p in pack.read(tmp_path)] == [patch(2).id]
    assert pack.index(tmp_path) == theirs


def test_only_the_tensors_that_the_old_index_named_are_deleted(tmp_path: Path) -> None:
    base = pack.Base("bert", "f")
    pack.write(tmp_path, [patch(1)], base)
    other = tmp_path / "patches-0123456789ab.safetensors"  # another writer's, not yet in an index
    other.write_bytes(b"theirs")
    pack.write(tmp_path, [patch(2)], base)
    assert other.exists() and len(list(tmp_path.glob("patches-*"))) == 2


def test_a_reader_looks_again_if_the_tensors_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pack.Base("bert", "f")
    pack.write(tmp_path, [patch(1)], base)
    old = pack.index(tmp_path)
    pack.write(tmp_path, [patch(2)], base)
    answers = [old]  # as if the index had been read just before the write
    real = pack.index
    monkeypatch.setattr(pack, "index", lambda path: answers.pop() if answers else real(path))
    assert [p.id for p in pack.read(tmp_path)] == [patch(2).id]


def spoiled(**more: object) -> bytes:
    """A patch's bytes with other tensors or other metadata; None takes something out."""
    good = patch(1)
    tensors = {**good.tensors, **{k: t for k, t in more.items() if isinstance(t, torch.Tensor)}}
    meta = {**good.meta, **{k: v for k, v in more.items() if k not in tensors}}
    return save_tensors(tensors, metadata={"tpatcher": json.dumps(meta)})


MALFORMED = {
    "layer": "x", "layer ": True, "id": 5, "editor": None, "kind": "foreign", "kind ": ["neurons"],
    "example": 5, "certificate": 5, "keys": torch.ones(1, 32, dtype=torch.bool),
    "values": torch.full((1, 32), torch.nan), "queries": torch.ones(1, 32, dtype=torch.int64),
    "bias": torch.ones(2), "states": torch.ones(3, 32), "tokens": torch.ones(1),
    "keys ": torch.ones(32), "keys  ": torch.ones(1, 32).to(torch.float8_e5m2),
    "more": torch.ones(1), "more/of": torch.ones(1), "unknown": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_patch_is_refused(name: str) -> None:
    with pytest.raises(TPatcherError):
        from_bytes(spoiled(**{name.strip(): MALFORMED[name]}))


def test_metadata_that_is_nested_too_deeply_is_refused() -> None:
    deep = "[" * 200_000
    with pytest.raises(Damaged):
        from_bytes(save_tensors({"a": torch.ones(1)}, metadata={"tpatcher": deep}))
    with pytest.raises(Damaged):
        from_bytes(save_tensors({"a": torch.ones(1)}, metadata={"tpatcher": "5"}))


@pytest.mark.parametrize("content", [
    '{"file": 5}', '{"file": null, "sha256": 1}', '{"file": "x", "sha256": 5}', "5", "[" * 200_000,
])  # fmt: skip
def test_a_malformed_index_is_refused(tmp_path: Path, content: str) -> None:
    pack.write(tmp_path, [patch(1)], pack.Base("bert", "f"))
    start = '{"base": {"name": "b", "fingerprint": "f"}, "patches": [], "tensors": '
    (tmp_path / "patches.json").write_text(start + content + "}")
    with pytest.raises(Damaged):
        pack.read(tmp_path)


@pytest.mark.parametrize("change", [
    {"radii": torch.tensor([torch.nan])}, {"radii": torch.ones(2)}, {"values": torch.ones(2, 3)},
    {"keys": torch.ones(4)}, {"tokens": torch.ones(1)}, {"layer": "x"},
])  # fmt: skip
def test_a_malformed_codebook_is_refused(change: dict[str, object]) -> None:
    good: dict[str, Any] = {
        "example": None, "editor": "grace", "layer": -1, "keys": torch.ones(1, 4),
        "radii": torch.ones(1), "values": torch.ones(1, 3), "tokens": torch.tensor([1]),
    }  # fmt: skip
    assert Codebook(**good).id
    with pytest.raises((ValueError, IndexError)):
        Codebook(**{**good, **change})


def test_a_cached_answer_with_half_a_scope_is_refused() -> None:
    scope = {"project": torch.ones(2, 3), "attend": torch.ones(3), "log_radius": torch.tensor(0.0)}
    good: dict[str, Any] = {"example": None, "editor": "serac", "answer": "yes"}
    assert CachedAnswer(**good, scope=scope, embedding=torch.ones(2)).id
    for bad in ({**scope, "attend": torch.ones(2)}, {"project": torch.ones(2, 3)}):
        with pytest.raises((ValueError, KeyError)):
            CachedAnswer(**good, scope=bad, embedding=torch.ones(2))
    with pytest.raises(ValueError, match="embedding"):
        CachedAnswer(**good, scope=scope, embedding=torch.ones(3))


def test_an_import_refuses_a_pack_with_a_malformed_patch(tmp_path: Path) -> None:
    base = pack.Base("bert", "f")
    pack.write(tmp_path / "p", [patch(1), patch(2)], base)
    index = tmp_path / "p" / "patches.json"
    index.write_text(index.read_text().replace('"layer": -1', '"layer": "x"', 1))
    store = Store(tmp_path / "s.db", base)
    with pytest.raises(Damaged):
        store.import_pack(tmp_path / "p")
    assert store.head == 0
    store.close()
