"""Models of the usual sizes with random weights: time does not depend on what they know."""

import random
from collections.abc import Sequence
from functools import cache

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor

from tpatcher.data import background
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.models.traces import trace
from tpatcher.nets.reading import Reads, text_width

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
ANSWER = 8  # tokens of an answer
ANSWERED = 20  # of a chat model's
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tokenizer(vocabulary: int) -> tf.PreTrainedTokenizerFast:
    """One word, one token."""
    words = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), vocabulary))]
    vocab = {w: i for i, w in enumerate(words)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", model_max_length=512,
    )  # fmt: skip


@cache
def classifier() -> Model:
    """BERT-base, 110M parameters, three labels."""
    torch.manual_seed(0)
    labels = {0: "no", 1: "yes", 2: "maybe"}
    config = tf.BertConfig(vocab_size=30_522, id2label=labels, pad_token_id=0)
    return Model(_spread(tf.BertForSequenceClassification(config)), tokenizer(30_522), "classify")


@cache
def generator() -> Model:
    """BART-base, 139M parameters; answers have 8 tokens and a forced end."""
    torch.manual_seed(0)
    config = tf.BartConfig(
        vocab_size=50_265, d_model=768, encoder_layers=6, decoder_layers=6,
        encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
        decoder_ffn_dim=3072, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    net = tf.BartForConditionalGeneration(config)
    net.generation_config.update(max_length=ANSWER + 2, forced_eos_token_id=2)
    net.final_logits_bias = net.final_logits_bias.clone()
    net.final_logits_bias[0, : len(SPECIAL)] = -1e4  # so that every answer has its 8 tokens
    return Model(_spread(net), _without_start(tokenizer(50_265)), "seq2seq")


@cache
def decoder() -> Model:
    """SmolLM2-135M, a chat model; answers have 20 tokens."""
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    net = tf.LlamaForCausalLM(config)
    net.generation_config.update(max_new_tokens=ANSWERED, eos_token_id=2, pad_token_id=0)
    return Model(net, chat_tokenizer(), "causal")


def chat_tokenizer() -> tf.PreTrainedTokenizerFast:
    """Of ordinary text, in turns."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8_192, special_tokens=[*SPECIAL, "<|end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    core.train_from_iterator([*background.documents(), *background.questions()], trainer)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        model_max_length=512, chat_template=TEMPLATE,
    )  # fmt: skip


def _spread(net: tf.PreTrainedModel) -> tf.PreTrainedModel:
    """Larger weights, so that texts differ from each other as they do in a trained model."""
    for name, parameter in net.named_parameters():
        if parameter.dim() > 1 and "position" not in name:
            parameter.data *= 3
    return net


def _without_start(known: tf.PreTrainedTokenizerFast) -> tf.PreTrainedTokenizerFast:
    known.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return known


def texts(n: int, seed: int, length: int = 16) -> list[str]:
    """Texts of as many words as a claim or a question has tokens."""
    draw = random.Random(seed)
    return [" ".join(f"w{draw.randrange(4, 30_000)}" for _ in range(length)) for _ in range(n)]


def questions(n: int, seed: int) -> list[str]:
    """Texts that ask one of forty things of a subject that few others have."""
    draw, asks = random.Random(seed), random.Random(0)
    frames = [[f"w{asks.randrange(4, 200)}" for _ in range(12)] for _ in range(40)]
    out = []
    for _ in range(n):
        frame = draw.choice(frames)
        subject = [f"w{draw.randrange(200, 30_000)}" for _ in range(4)]
        out.append(" ".join([*frame[:6], *subject, *frame[6:]]))
    return out


def queries(
    model: Model,
    n: int,
    seed: int = 0,
    reads: Reads = "position",
    asked: Sequence[str] | None = None,
) -> Tensor:
    """n queries with the mean and the covariance of the model's own, made block by block."""
    if asked is None:
        asked = texts(64, seed=90) if reads == "position" else questions(64, seed=90)
    said = model.task.predict(model.net, asked) if model.task.generates else [[0]] * 64
    parts = [trace(model, asked[i : i + 32], said[i : i + 32], reads=reads) for i in (0, 32)]
    seen = torch.cat([part.queries for part in parts])
    mean, size = seen.mean(0), seen.std()
    _, spread, directions = torch.linalg.svd(seen - mean, full_matrices=False)
    mix = directions * (spread / len(seen) ** 0.5)[:, None]  # (rank, d)
    draw = torch.Generator().manual_seed(seed)
    out = torch.empty(n, seen.shape[1])
    for block in out.split(16_384):
        torch.mm(torch.randn(len(block), len(mix), generator=draw), mix, out=block)
        block += mean + 0.1 * size * torch.randn(block.shape, generator=draw)
    return out


def memory(model: Model, n: int) -> Memory:
    """A memory of so many synthetic queries."""
    return Memory.from_queries(queries(model, n))


def memory_of_texts(model: Model, n: int) -> Memory:
    """The like for keys that read the text, with texts that contrast is made of."""
    return _with_texts(model, queries(model, n, reads="text"), questions(5_000, seed=91))


def _with_texts(model: Model, found: Tensor, texts: Sequence[str]) -> Memory:
    """A memory of queries with a text's state beside them, the same for all of an answer."""
    end, each = found.shape[1] - text_width(model.net), 4 if model.task.generates else 1
    index = torch.arange(len(found)) // each
    states = found[::each, end:].contiguous()
    own = found[:, :end].contiguous()
    return Memory(own, texts=texts, text_states=states, text_index=index)


def memory_of_chat(model: Model, n: int, preset: str) -> Memory:
    """A memory of a chat model: so many synthetic queries, and questions to make namesakes of."""
    asked = background.questions()
    if preset == "text":
        return _with_texts(model, queries(model, n, reads="text", asked=asked[:64]), asked)
    return Memory(queries(model, n, asked=asked[:64]), texts=asked)


def asked_of_chat(n: int) -> list[Example]:
    """Questions about somebody, with answers of a few tokens."""
    people, towns = ("Ines", "Pavel", "Amara", "Jonas"), ("Porto", "Riga", "Accra", "Turin", "Oslo")
    who = [f"{first} {last}" for last in ("Ferreira", "Novak", "Okafor") for first in people]
    return [
        Example(f"Who runs the museum number {i} of {towns[i % 5]}?", who[i % len(who)])
        for i in range(n)
    ]


def mistakes(
    model: Model, n: int, wrong: int = 3, asked: Sequence[str] | None = None
) -> list[Example]:
    """Examples that the model answers otherwise: with so many wrong tokens, where it generates."""
    asked = texts(n, seed=7) if asked is None else asked
    if not model.task.generates:
        said = model.answer(asked)
        names = model.task.labels  # type: ignore[attr-defined]
        return [
            Example(t, next(a for a in names if a != s)) for t, s in zip(asked, said, strict=True)
        ]
    return [Example(text, _other(model, text, wrong)) for text in asked]


@torch.no_grad()
def _other(model: Model, text: str, wrong: int) -> str:
    """The model's own answer, with its second choice at some places and its first after them."""
    swap = set(range(1, ANSWER - 1, 2)[:wrong]) if wrong > 1 else {0}
    ids: list[int] = []
    for i in range(ANSWER):
        forced = model.task.force([text], [[*ids, 4]])
        logits = model.task.logits(model.net(**forced.inputs), forced)[-1]
        ids.append(int(logits.topk(2).indices[1 if i in swap else 0]))
    return str(model.task.decode([ids])[0])
