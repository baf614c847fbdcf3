"""Where the feed-forward layers are, and which models have none that could carry a patch."""

import pytest
import torch
import transformers as tf

from tests import zoo
from tpatcher.errors import BadInput, UnsupportedArchitecture
from tpatcher.nets import ffn


def test_albert_shares_its_layer() -> None:
    settings = {**zoo.ENC, "embedding_size": 16}
    net = tf.AlbertForSequenceClassification(tf.AlbertConfig(**settings))
    with pytest.raises(UnsupportedArchitecture, match="shares one layer"):
        ffn.find(net)


@pytest.mark.parametrize("kind", [tf.MixtralConfig, tf.Qwen2MoeConfig])
def test_a_mixture_of_experts_has_no_single_ffn(kind: type[tf.PreTrainedConfig]) -> None:
    more = {"num_local_experts": 2, "num_experts": 2, "moe_intermediate_size": 16}
    net = tf.AutoModelForCausalLM.from_config(kind(**{**zoo.LLAMA, **more}))
    with pytest.raises(UnsupportedArchitecture, match="mixture of experts"):
        ffn.find(net)


def test_a_model_without_layers() -> None:
    config = tf.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], num_labels=2)
    with pytest.raises(UnsupportedArchitecture, match="no feed-forward layers"):
        ffn.find(tf.ResNetForImageClassification(config))


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(BadInput, match="has 2 layers"):
        ffn.find(zoo.net("bert"), layer=2)


def test_gated_layers_are_found_by_the_name_of_the_gate() -> None:
    place = ffn.find(zoo.net("llama"))
    assert place.first.endswith("gate_proj")
    assert str(place.up).endswith("up_proj")
    assert ffn.find(zoo.net("phi3")).fused
    assert ffn.find(zoo.net("modernbert")).fused


def test_widening_again_replaces_and_never_nests() -> None:
    net = zoo.net("bert")
    place = ffn.find(net)
    for n in (1, 4, 2):
        place.widen(net, torch.zeros(n, 32), torch.zeros(n), torch.zeros(n, 32))
        assert place.rows(net) == n
        assert not isinstance(net.get_submodule(place.first).inner, ffn.Wrapped)  # type: ignore[union-attr]
    assert ffn.find(net) == place, "a layer is found in the same way when it is patched"
    place.bare(net)
    assert place.rows(net) == 0
    assert isinstance(net.get_submodule(place.first), torch.nn.Linear)
