"""LoRA (Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022), one adapter per
mistake.

Each matrix W becomes W + (α/r)·B·A (their Eq. 3), trained through peft and merged: the
patch holds whole weights, as that of fine-tuning does.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from tpatcher.editors.base import Editor
from tpatcher.editors.finetune import tune
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.nets import ffn
from tpatcher.nets.seeded import seeded
from tpatcher.nets.twin import twin
from tpatcher.patches.weights import Weights, matrices, swap


@dataclass
class Lora(Editor):
    """Low-rank updates of weight matrices, trained until the model answers the mistake rightly."""

    name: ClassVar[str] = "lora"
    rank: int = 8
    alpha: float = 16.0
    learning_rate: float = 1e-3
    steps: int = 200
    layers: Literal["last", "all"] = "all"
    seed: int = 0

    def solve(self, model: Model, example: Example) -> Weights:
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as error:
            raise BadInput("LoRA needs peft: pip install 'tpatcher[lora]'") from error
        net = twin(model.net).eval()
        # peft freezes the parameters that it finds, so give it ones that no twin shares
        swap(net, {n: nn.Parameter(p.detach()) for n, p in net.named_parameters()})
        names = [
            name
            for name in (n.removesuffix(".weight") for n in matrices(net, self.layers))
            if not isinstance(net.get_submodule(name), ffn.Wrapped)  # peft knows no wrappers
        ]
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            target_modules=names,
            fan_in_fan_out=not isinstance(net.get_submodule(names[0]), nn.Linear),
        )
        with seeded(self.seed, model.net.device):
            inject_adapter_in_model(config, net)
        adapters = [p for n, p in net.named_parameters() if "lora_" in n]
        certificate = tune(model, net, adapters, example, self.learning_rate, self.steps)
        values = {}
        for name in names:
            layer = net.get_submodule(name)
            change = layer.get_delta_weight("default")  # type: ignore[operator]
            values[f"{name}.weight"] = layer.get_base_layer().weight + change  # type: ignore[operator]
        return Weights(example=example, editor=self.name, certificate=certificate, values=values)
