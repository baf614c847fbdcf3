"""Packs: saved, loaded, refused when they do not fit or are damaged."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tpatcher as tp
from tests.helpers import edited, fresh, logits, wearing
from tpatcher.errors import BadInput, Damaged, TPatcherError, WrongBase
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
    assert len(list(tmp_path.iterdir())) == 3
    model.pop()
    model.save_patches(tmp_path)  # again: the old tensors are gone
    assert len(list(tmp_path.iterdir())) == 3
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
