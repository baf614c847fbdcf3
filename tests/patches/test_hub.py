"""Packs on the hub, against a stand-in on loopback that speaks its protocol."""

import json
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
import yaml

import tpatcher as tp
from tests.helpers import edited, logits, saved, wearing
from tests.patches.hub_server import Hub, oid, running
from tpatcher.errors import BadInput, WrongBase
from tpatcher.patches import hub
from tpatcher.patches.card import card, plain
from tpatcher.patches.pack import Base


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub's client, pointed at the stand-in, with a cache and a token of its own."""
    with running() as server:
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setenv("HF_TOKEN", "secret")
        yield server


def test_a_pack_goes_to_the_hub_and_comes_back(online: Hub, tmp_path: Path) -> None:
    examples, patches = edited("bert")
    model = wearing("bert", *patches)
    where = model.push_patches("ann/fixes")
    assert where == f"{online.url}/ann/fixes/commit/{oid(1)}"
    assert online.private["ann/fixes"]
    readme = online.repos["ann/fixes"][-1]["README.md"].decode()
    assert 'tp.load("bert", patches="ann/fixes")' in readme and examples[0].text in readme
    base = saved(tmp_path / "model", "bert")
    loaded = tp.load(base, patches="ann/fixes")
    assert torch.equal(logits(loaded), logits(model))
    assert loaded.correct(examples) == [True] * len(examples)


def test_a_second_push_replaces_the_pack_in_one_commit(online: Hub, tmp_path: Path) -> None:
    _, patches = edited("bert")
    model = wearing("bert", *patches)
    model.push_patches("ann/fixes", private=False, text=False)
    assert not online.private["ann/fixes"]
    model.pop()
    model.push_patches("ann/fixes", text=False)
    assert len(online.repos["ann/fixes"]) == 3, "the empty repository and two commits"
    now = online.repos["ann/fixes"][-1]
    assert len([f for f in now if f.endswith(".safetensors")]) == 1
    assert patches[0].example and patches[0].example.text.encode() not in b"".join(now.values())
    base = saved(tmp_path / "model", "bert")
    assert len(tp.load(base, patches="ann/fixes").patches) == len(patches) - 1
    assert len(tp.load(base, patches=f"ann/fixes@{oid(1)}").patches) == len(patches)


def test_what_the_hub_refuses_is_said_in_one_line(
    online: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wearing("bert", *edited("bert")[1])
    with pytest.raises(BadInput, match="user/name; found 'nobody'"):
        model.push_patches("nobody")
    with pytest.raises(BadInput, match="cannot fetch the patches 'ann/nothing'"):
        hub.found("ann/nothing")
    online.repos["ann/other"] = [{"config.json": b"{}"}]
    with pytest.raises(BadInput, match="not a pack of patches"):
        hub.found("ann/other")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(BadInput, match="cannot push the patches to 'ann/fixes'"):
        model.push_patches("ann/fixes")
    assert "ann/fixes" not in online.repos


def test_a_pack_for_another_model_is_refused(online: Hub, tmp_path: Path) -> None:
    wearing("bert", *edited("bert")[1]).push_patches("ann/fixes")
    with pytest.raises(WrongBase):
        tp.load(saved(tmp_path / "model", "bart"), patches="ann/fixes")


def test_a_directory_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ann/fixes").mkdir(parents=True)
    assert hub.found("ann/fixes") == Path("ann/fixes")
    assert hub.found(tmp_path / "nowhere") == tmp_path / "nowhere"
    with pytest.raises(BadInput, match="cannot fetch"):  # the tests are offline
        hub.found("bob/fixes")


def test_a_card_says_what_was_checked_and_holds_no_markup_of_others() -> None:
    _, patches = edited("bert")
    made = card(patches, Base("ann/bert", "f00"), "bob/fixes")
    head = yaml.safe_load(made.split("---")[1])
    assert head["base_model"] == "ann/bert" and head["library_name"] == "tpatcher"
    assert f"| fixes | {len(patches)} |" in made and "`f00`" in made
    assert f"| answers of the memory that change | 0, in {len(patches)} fixes |" in made
    assert "base_model" not in card(patches, Base(str(Path.cwd()), "f00"))
    assert plain("a|b\n[x](http://y) <b>`c`") == r"a\|b \[x\](http://y) \<b\>\`c\`"
    assert json.dumps("this directory") in card((), Base("m", "f"))
