"""Training the two small models that come with the package, from its built-in facts alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tpatcher.checkpoints.recipes import Recipe
from tpatcher.checkpoints.train import fit
from tpatcher.data.builtin import LABELS, builtin_fc, builtin_qa
from tpatcher.errors import unknown
from tpatcher.example import Example

BuiltinName = Literal["builtin-fc", "builtin-qa"]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # BART's order, so that its config's ids hold

# Small models learn by heart only with a large rate. An epoch shows every phrasing twice: as itself
# and as the rephrasing of another.
BUILTIN: dict[str, Recipe] = {
    "builtin-fc": Recipe(epochs=1.8, rate=1e-3, warmup=0.05, agreement=0.1, store_half=True),
    "builtin-qa": Recipe(
        epochs=1.5,
        rate=1e-3,
        warmup=0.05,
        smoothing=0.1,
        agreement=0.1,
        from_scratch=True,
        store_half=True,
    ),
}


def train_builtin(
    name: BuiltinName,
    out: Path,
    *,
    recipe: Recipe | None = None,
    progress: bool = True,
    device: str | None = None,
) -> Path:
    """Train one of the two models; returns its folder, `out`."""
    if name not in BUILTIN:
        raise unknown("built-in model", name, BUILTIN)
    recipe = recipe or BUILTIN[name]
    transformers.set_seed(recipe.seed)
    split = builtin_fc() if name == "builtin-fc" else builtin_qa()
    tokenizer = small_tokenizer(split.train)
    net = small_classifier(tokenizer) if name == "builtin-fc" else small_seq2seq(tokenizer)
    return fit(net, tokenizer, split, out, recipe, progress, device)


def small_tokenizer(rows: Sequence[Example], size: int = 5000) -> PreTrainedTokenizerBase:
    """A byte-level BPE trained on texts and answers; it decodes every answer exactly."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    bpe.train_from_iterator(
        sorted({t for e in rows for t in (e.text, e.answer)}),
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, model_max_length=64, cls_token="<s>", sep_token="</s>", **names
    )


def small_classifier(tokenizer: PreTrainedTokenizerBase, width: int = 128) -> PreTrainedModel:
    """An untrained BERT that checks claims."""
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=4 * width,
            max_position_embeddings=tokenizer.model_max_length,
            type_vocab_size=1,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,  # BERT's own 0.02 suits its width
            pad_token_id=tokenizer.pad_token_id,
            id2label=dict(enumerate(LABELS)),
            label2id={label: i for i, label in enumerate(LABELS)},
        )
    )


def small_seq2seq(tokenizer: PreTrainedTokenizerBase, width: int = 128) -> PreTrainedModel:
    """An untrained BART that answers questions greedily."""
    net = transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=len(tokenizer),
            d_model=width,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            max_position_embeddings=tokenizer.model_max_length,
            # BART's own 0.02 suits its width; here it would leave the cross-attention unheard.
            init_std=0.05,
        )
    )
    net.generation_config = transformers.GenerationConfig(
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_bos_token_id=0,  # as BART's: no patch can be in the way of the first token
        num_beams=1,
        do_sample=False,
        max_new_tokens=24,
    )
    return net
