"""A tiny chat model that can express any text: a Llama of bytes, with a chat template."""

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import tpatcher as tp

MARKS = ["<pad>", "<s>", "</s>"]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tokenizer(template: str | None = TEMPLATE) -> tf.PreTrainedTokenizerFast:
    """Bytes as tokens, and three marks."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({t: i for i, t in enumerate(MARKS + signs)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    made = tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    made.chat_template = template
    return made


def net(
    kind: type[tf.PreTrainedConfig] = tf.LlamaConfig,
    width: int = 48,
    tokens: int = len(MARKS) + 256,
) -> tf.PreTrainedModel:
    """A random net of this kind for that tokenizer, its weights spread out."""
    torch.manual_seed(0)
    config = kind(
        vocab_size=tokens,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    made = tf.AutoModelForCausalLM.from_config(config)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data *= 6
    made.generation_config.max_new_tokens = 8
    return made.eval()


def chat(template: str | None = TEMPLATE) -> tp.Model:
    """The chat model without patches."""
    return tp.Model(net(), tokenizer(template), "causal", name="chat")
