"""Tiny models of every architecture, made from their configs, with a tokenizer of their own."""

from functools import cache
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = [
    "the", "a", "an", "of", "in", "on", "is", "was", "were", "are", "who", "what", "where",
    "when", "which", "wrote", "capital", "city", "river", "country", "france", "paris",
    "spain", "madrid", "italy", "rome", "japan", "tokyo", "peru", "lima", "hamlet",
    "shakespeare", "william", "red", "green", "blue", "yes", "no", "true", "false", "dog",
    "cat", "bird", "fish", "?", ".", ",", "one", "two", "three", "four", "five",
]  # fmt: skip
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
V = len(SPECIAL) + len(WORDS)
S = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
D = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": V}
ENC = {**D, "intermediate_size": 48, "max_position_embeddings": 64, **S}
LLAMA = {**ENC, "num_key_value_heads": 2, "head_dim": 8}
BART = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 64, **S,
}  # fmt: skip
T5 = {"vocab_size": V, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}

CLASSIFY = {
    "bert": (tf.BertConfig, ENC),
    "roberta": (tf.RobertaConfig, ENC),
    "distilbert": (tf.DistilBertConfig, {"vocab_size": V, "dim": 32, "hidden_dim": 48,
        "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0}),
    "electra": (tf.ElectraConfig, {**ENC, "embedding_size": 32}),
    "mpnet": (tf.MPNetConfig, ENC),
    "deberta-v2": (tf.DebertaV2Config, {**ENC, "pooler_hidden_size": 32,
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    "modernbert": (tf.ModernBertConfig, {**ENC, "cls_token_id": 1, "sep_token_id": 2,
        "classifier_pooling": "cls"}),
}  # fmt: skip
SEQ2SEQ = {
    "bart": (tf.BartConfig, {**BART, "forced_eos_token_id": 2, "decoder_start_token_id": 2}),
    "mbart": (tf.MBartConfig, BART),
    "marian": (tf.MarianConfig, {**BART, "decoder_start_token_id": 0, "eos_token_id": 2}),
    "pegasus": (tf.PegasusConfig, {**BART, "decoder_start_token_id": 0}),
    "t5": (tf.T5Config, {**T5, **S, "decoder_start_token_id": 0, "feed_forward_proj": "relu"}),
    "t5-gated": (tf.T5Config, {**T5, **S, "decoder_start_token_id": 0,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip
CAUSAL = {
    "gpt2": (tf.GPT2Config, {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "n_inner": 48, "n_positions": 64, **S}),
    "gpt-neo": (tf.GPTNeoConfig, {"vocab_size": V, "hidden_size": 32, "num_layers": 2,
        "num_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64,
        "attention_types": [[["global", "local"], 1]], **S}),
    "gpt-neox": (tf.GPTNeoXConfig, ENC),
    "opt": (tf.OPTConfig, {**D, "ffn_dim": 48, "max_position_embeddings": 64,
        "word_embed_proj_dim": 32, **S}),
    "bloom": (tf.BloomConfig, {"vocab_size": V, "hidden_size": 32, "n_layer": 2, "n_head": 4, **S}),
    "llama": (tf.LlamaConfig, LLAMA),
    "mistral": (tf.MistralConfig, LLAMA),
    "qwen2": (tf.Qwen2Config, LLAMA),
    "qwen3": (tf.Qwen3Config, LLAMA),
    "gemma2": (tf.Gemma2Config, LLAMA),
    "gemma3": (tf.Gemma3TextConfig, LLAMA),
    "phi3": (tf.Phi3Config, LLAMA),
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {"classify": CLASSIFY, "seq2seq": SEQ2SEQ, "causal": CAUSAL}
ARCHITECTURES = {name: task for task, table in TASKS.items() for name in table}
AUTO = {
    "classify": tf.AutoModelForSequenceClassification,
    "seq2seq": tf.AutoModelForSeq2SeqLM,
    "causal": tf.AutoModelForCausalLM,
}


@cache
def tokenizer(task: str) -> tf.PreTrainedTokenizerFast:
    """A word tokenizer over WORDS, closing with </s> as the task's models expect."""
    vocab = {w: i for i, w in enumerate(SPECIAL + WORDS)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if task != "causal":
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return wrapped(core, 64, "left" if task == "causal" else "right")


def wrapped(core: Tokenizer, length: int, side: str = "right") -> tf.PreTrainedTokenizerFast:
    """A tokenizer as Transformers has it, with the special tokens of all models here."""
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=length,
        padding_side=side,
    )


def net(name: str, seed: int = 0, **changes: object) -> tf.PreTrainedModel:
    """A randomly initialised model, its weights spread out so that its answers differ."""
    task = ARCHITECTURES[name]
    kind, settings = TASKS[task][name]
    more = {"id2label": {0: "no", 1: "yes", 2: "maybe"}} if task == "classify" else {}
    torch.manual_seed(seed)
    made = AUTO[task].from_config(kind(**{**settings, **more, **changes}))
    for key, parameter in made.named_parameters():
        if parameter.dim() > 1:
            parameter.data *= 6
        if "post_feedforward" in key:  # Gemma's trained ones let the FFN outweigh the residual
            parameter.data += 20
    if task != "classify":
        made.generation_config.max_new_tokens = 8
    return made.eval()
