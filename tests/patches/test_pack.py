"""Packs: saved, loaded, refused when they do not fit or are damaged."""

import json
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tpatcher as tp
from tests.helpers import edited, fresh, logits, wearing
from tests.store.made import patch
from tpatcher.errors import BadInput, Damaged, StaleHead, TPatcherError, WrongBase
from tpatcher.patches import from_bytes, pack
from tpatcher.patches.neurons import Neurons


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
