"""Qwen2, Qwen2.5 and Mistral as what they are: Llamas whose config cannot say that it has biases.

Their layers compute the same; only where a bias may be differs. A Llama's config can switch on
those of the feed-forward layers, which a baked patch needs, so stock servers can run the result.
"""

from transformers import LlamaConfig, PreTrainedConfig

from tpatcher.errors import UnsupportedArchitecture

# Qwen2 has biases in attention but for the output's, which is zero in the Llama.
ATTENTION_BIAS = {"qwen2": True, "mistral": False}


def as_llama(config: PreTrainedConfig) -> PreTrainedConfig:
    """A Llama's config for the same weights; a config of any other kind as it is."""
    if config.model_type not in ATTENTION_BIAS:
        return config
    window = getattr(config, "sliding_window", None)
    if window is not None and window < config.max_position_embeddings:
        raise UnsupportedArchitecture(
            f"this {config.model_type} sees {window} of its {config.max_position_embeddings} "
            "positions at a time (sliding_window), which no Llama does: if your texts are shorter, "
            "set max_position_embeddings of its config to the window; or share the patches as a "
            "pack (save_patches)"
        )
    known, own = LlamaConfig().to_dict(), config.to_dict()
    shared = {name: own[name] for name in known if name in own and name not in OF_ITS_KIND}
    made = LlamaConfig(**shared, attention_bias=ATTENTION_BIAS[config.model_type])
    kind = type(made).__name__.removesuffix("Config")
    made.architectures = [
        kind + name.removeprefix("Qwen2").removeprefix("Mistral")
        for name in config.architectures or ()
    ] or None
    return made


OF_ITS_KIND = ("model_type", "architectures", "attention_bias", "mlp_bias", "transformers_version")
