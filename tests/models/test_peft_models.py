"""Models that PEFT has fine-tuned are fixed as they are."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tpatcher as tp
from tests import chat, zoo
from tests.helpers import TEXTS, logits, saved
from tpatcher.checkpoints.bake import bake
from tpatcher.errors import BadInput, UnsupportedArchitecture
from tpatcher.models import loading, peft_models

peft = pytest.importorskip("peft")


def adapted(*names: str) -> Any:
    """A tiny Llama with adapters, which are not zero, on these matrices."""
    made = peft.get_peft_model(zoo.net("llama"), peft.LoraConfig(r=2, target_modules=list(names)))
    torch.manual_seed(1)
    for key, parameter in made.named_parameters():
        if "lora_B" in key:
            parameter.data = torch.randn_like(parameter)
    return made.eval()


@pytest.mark.parametrize("names", [("q_proj", "v_proj"), ("gate_proj", "up_proj", "down_proj")])
def test_an_adapted_model_is_fixed_and_undone(names: tuple[str, ...]) -> None:
    net = adapted(*names)
    model = tp.load(net, tokenizer=zoo.tokenizer("causal"))
    before, keys = logits(model), set(model.net.state_dict())
    assert not torch.allclose(
        before, logits(tp.Model(zoo.net("llama"), zoo.tokenizer("causal"), "causal"))
    )
    example = tp.Example("what is the city of rome ?", "lima")
    patch = tp.TPatcher().fit(model, TEXTS).edit(model, example)
    model.push(patch)
    assert model.correct([example]) == [True]
    assert set(model.net.state_dict()) == keys
    model.pop()
    assert torch.equal(logits(model), before)


def test_an_adapter_that_was_saved(tmp_path: Path) -> None:
    base = saved(tmp_path / "base", "llama")
    net = adapted("q_proj", "up_proj")
    net.peft_config["default"].base_model_name_or_path = str(base)
    net.save_pretrained(tmp_path / "adapter")
    model = tp.load(tmp_path / "adapter")
    given = tp.load(net, tokenizer=zoo.tokenizer("causal"))
    torch.testing.assert_close(logits(model), logits(given))


def test_an_adapter_is_not_baked(tmp_path: Path) -> None:
    model = tp.load(adapted("q_proj"), tokenizer=zoo.tokenizer("causal"))
    with pytest.raises(UnsupportedArchitecture, match="merge_and_unload"):
        bake(model, tmp_path / "out", spare=1)


def test_what_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = saved(tmp_path / "base", "llama")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(peft_models, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install bitsandbytes"):
        tp.load(base, quantize="4bit")
    with pytest.raises(BadInput, match="pip install peft"):
        peft_models.adapted(zoo.net("llama"), "somewhere")
    with pytest.raises(BadInput, match="pip install accelerate"):
        tp.load(base, device_map="auto")


def test_options_of_loading(tmp_path: Path) -> None:
    base = saved(tmp_path / "base", "llama")
    assert tp.load(base, dtype="bfloat16").net.dtype == torch.bfloat16
    with pytest.raises(BadInput, match="unknown dtype"):
        tp.load(base, dtype="int3")
    with pytest.raises(BadInput, match="unknown quantization"):
        tp.load(base, quantize="2bit")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="tokenizer="):
        tp.load(zoo.net("llama"))
    with pytest.raises(BadInput, match="a name, a path or a PreTrainedModel"):
        tp.load(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    sharded = tp.load(base, device_map={"": "cpu"})
    assert sharded.answer(["the dog"]) == tp.load(base).answer(["the dog"])


def test_a_missing_limit_is_said(tmp_path: Path) -> None:
    def unlimited(net: Any) -> None:
        net.generation_config.max_new_tokens = None

    base = saved(tmp_path / "base", "llama", unlimited)
    with pytest.warns(UserWarning, match="cut after 20 tokens"):
        tp.load(base)
    assert tp.load(base, max_new_tokens=5).task.limit == 5  # type: ignore[attr-defined]


@pytest.mark.skipif(not loading.installed("bitsandbytes"), reason="bitsandbytes is not installed")
@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_a_quantised_base_is_fixed(tmp_path: Path, bits: Any) -> None:
    chat.net(width=64).save_pretrained(tmp_path / "base")
    chat.tokenizer().save_pretrained(tmp_path / "base")
    model = tp.load(tmp_path / "base", quantize=bits)
    example = tp.Example("Who?", "Me")
    memory = tp.Memory.collect(model, TEXTS, background=False)
    model.push(tp.TPatcher().fit(model, memory).edit(model, example))
    assert model.correct([example]) == [True]
    with pytest.raises(UnsupportedArchitecture, match="quantised"):
        bake(model, tmp_path / "out")
