"""Where the feed-forward layers are, and which models have none that could carry a patch."""

import pytest
import torch
import transformers as tf
from torch import nn

from tests import zoo
from tpatcher.errors import BadInput, UnsupportedArchitecture
from tpatcher.nets import ffn
from tpatcher.nets.rows import Rows


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
        place.widen(net, Rows(torch.zeros(n, 32), torch.zeros(n), torch.zeros(n, 32)))
        assert place.n_neurons(net) == n
        assert not isinstance(net.get_submodule(place.first).inner, ffn.Wrapped)  # type: ignore[union-attr]
    assert ffn.find(net) == place, "a layer is found in the same way when it is patched"
    place.restore(net)
    assert place.n_neurons(net) == 0
    assert isinstance(net.get_submodule(place.first), torch.nn.Linear)


def test_a_widened_ffn_is_the_ffn_plus_the_patches() -> None:
    """Widened ∘ Act ∘ Narrowed = FFN(q) + Act(q·K + b)·V (Eq. 8)."""
    torch.manual_seed(0)
    first, second, act = nn.Linear(8, 16), nn.Linear(16, 8), nn.GELU()
    rows = Rows(torch.randn(3, 8), torch.randn(3), torch.randn(3, 8))
    q = torch.randn(2, 5, 8)
    wide = ffn.Narrowed(second, rows)(act(ffn.Widened(first, rows, False)(q)))
    by_hand = act(q @ rows.keys.T + rows.bias) @ rows.values
    torch.testing.assert_close(wide, second(act(first(q))) + by_hand)
    torch.testing.assert_close(rows.delta(act, q), by_hand)


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_values_of_zero_change_nothing(name: str) -> None:
    """Only to within rounding while worn: a wider matrix moves elements between the body and the
    tail of a vector, where SiLU and GeLU may round differently. Bit for bit once it is off."""
    net = zoo.net(name)
    place = ffn.find(net)
    ids = torch.arange(4, 12)[None]
    more = {"decoder_input_ids": ids} if net.config.is_encoder_decoder else {}
    with torch.no_grad():
        before = net(input_ids=ids, **more).logits
        zero = torch.zeros(3, place.width)
        place.widen(net, Rows(torch.randn(3, place.width), torch.zeros(3), zero))
        torch.testing.assert_close(net(input_ids=ids, **more).logits, before)
        place.restore(net)
        assert torch.equal(net(input_ids=ids, **more).logits, before)
