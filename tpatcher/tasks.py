"""What a model is asked to do: text in, answer out, and where in the net an answer is decided."""

import copy
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import LogitsProcessorList

from tpatcher.errors import BadInput, NotFixed, UnsupportedArchitecture
from tpatcher.example import normal


@dataclass(frozen=True)
class Forced:
    """A batch of texts with given answers, for one teacher-forced forward pass.

    Answer position p is at (row[p], column[p]) of the stack that is patched; `tokens[p]` is
    the given label or token there, `step[p]` how many tokens were given before it.
    """

    inputs: dict[str, Tensor]
    row: Tensor
    column: Tensor
    tokens: Tensor
    step: Tensor


class Task(ABC):
    """One of the three things that a transformer is deployed for."""

    name: str
    reads: tuple[str, ...] = ("each",)  # a classification head reads one token of the text
    read: str = "each"  # which of those it is; "all" if it is none of them

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.lock = threading.Lock()
        known = [tokenizer.model_max_length, getattr(net.config, "max_position_embeddings", None)]
        self.context = min((n for n in known if n and n > 0), default=10**9)

    def answer(self, net: PreTrainedModel, texts: Sequence[str]) -> list[str]:
        """Answers by really running the net on one batch."""
        return self.worded(self.said(net, texts))

    @abstractmethod
    def worded(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """The answers that labels or tokens stand for."""

    @abstractmethod
    def target(self, text: str, answer: str) -> list[int]:
        """The label, or the tokens with the end token, that the net must give for this answer."""

    @abstractmethod
    def said(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        """What the net says now, in the form of `target`."""

    @abstractmethod
    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> Forced:
        """The batch that makes the net go through these answers."""

    @abstractmethod
    def logits(self, output: Any, forced: Forced) -> Tensor:
        """The net's logits at the answer positions, (P, labels or tokens)."""

    @abstractmethod
    def some_targets(self, n: int) -> list[list[int]]:
        """n targets of any kind, to try the net out with."""

    @abstractmethod
    def head_inputs(self, net: PreTrainedModel, forced: Forced) -> dict[str, Tensor]:
        """What to call a net with whose stack of layers returns given hidden states."""

    def flat(self, logits: Tensor) -> Tensor:
        """The logits of such a call, (P, labels or tokens)."""
        return logits[0]

    def process(self, net: PreTrainedModel, forced: Forced, logits: Tensor) -> Tensor:
        """Logits as greedy decoding sees them; the generation config may forbid or force tokens."""
        return logits

    def name_of(self, answer: str) -> str:
        """An answer in the words that the model uses for it."""
        return answer

    def tokenize(self, *args: Any, **kwargs: Any) -> Any:
        """The tokenizer, one thread at a time: padding and truncation are settings inside it."""
        with self.lock:
            return self.tokenizer(*args, **kwargs)

    def encode(self, texts: Sequence[str], side: str = "right", **more: Any) -> dict[str, Tensor]:
        """Token ids and mask, padded on one side; a text beyond the context is cut, as warned."""
        for text in texts:
            if not text.strip():
                raise BadInput("an empty text was given; a question needs at least one word")
            if len(text) > self.context // 2:  # characters: only then can the tokens be too many
                length = len(self.tokenize(text, verbose=False, **more).input_ids)
                if length > self.context:
                    cut = f"a text of {length} tokens is cut to the model's {self.context}"
                    warnings.warn(cut, stacklevel=2)
        out = self.tokenize(
            list(texts), return_tensors="pt", padding=True, padding_side=side, truncation=True,
            max_length=self.context, **more,
        )  # fmt: skip
        return {k: v for k, v in out.items() if k in ("input_ids", "attention_mask")}


class Classify(Task):
    """One label out of several, read by the head from one token (or from all)."""

    name = "classify"
    reads = ("first", "last")
    read = "first"

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        config = net.config
        if config.problem_type == "multi_label_classification":
            raise UnsupportedArchitecture(
                "this is a multi-label head: several labels can be right at once, so a mistake is "
                "not one wrong label; single-label classifiers can be patched"
            )
        if config.problem_type == "regression":
            raise UnsupportedArchitecture(
                "this is a regression head: it gives a number, not a label, so no answer of it is "
                "right or wrong; if it is a yes/no classifier, remove problem_type from its config"
            )
        one = config.num_labels == 1  # no for a logit below 0, yes above
        self.labels = ["0", "1"] if one else [config.id2label[i] for i in range(config.num_labels)]

    def name_of(self, answer: str) -> str:
        return self.labels[self.target("", answer)[0]]

    def target(self, text: str, answer: str) -> list[int]:
        names = [normal(label) for label in self.labels]
        wanted = normal(answer)
        if wanted in names:
            return [names.index(wanted)]
        if wanted.isdecimal() and int(wanted) < len(names):
            return [int(wanted)]
        close = get_close_matches(wanted, names, 1)
        hint = f" Did you mean {self.labels[names.index(close[0])]!r}?" if close else ""
        raise BadInput(f"unknown label {answer!r}.{hint} Available: {', '.join(self.labels)}")

    def said(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        inputs = {k: v.to(net.device) for k, v in self.encode(texts).items()}
        return [[int(i)] for i in two(net(**inputs).logits).argmax(-1)]

    def worded(self, targets: Sequence[Sequence[int]]) -> list[str]:
        return [self.labels[i] for (i,) in targets]

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> Forced:
        inputs = self.encode(texts)
        mask = inputs["attention_mask"]
        row, last = torch.arange(len(texts)), mask.cumsum(-1).argmax(-1)
        if self.read == "all":
            row, column = mask.nonzero(as_tuple=True)
        else:
            column = last if self.read == "last" else mask.argmax(-1)
        tokens = torch.tensor([t for (t,) in targets])[row]
        return Forced(inputs, row, column, tokens, torch.zeros_like(row))

    def logits(self, output: Any, forced: Forced) -> Tensor:
        return two(output.logits)[forced.row]

    def some_targets(self, n: int) -> list[list[int]]:
        return [[0]] * n

    def head_inputs(self, net: PreTrainedModel, forced: Forced) -> dict[str, Tensor]:
        token = forced.inputs["input_ids"][
            0, forced.column[0]
        ]  # what the head looks for, if it does
        inputs = {"input_ids": token[None, None].to(net.device)}
        if net.config.is_encoder_decoder:
            inputs["encoder_outputs"] = torch.zeros(1, 1, 1, device=net.device)
        return {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])}

    def flat(self, logits: Tensor) -> Tensor:
        return two(logits)


class Generate(Task):
    """A text, generated greedily on the model's own generation config."""

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        self.config: GenerationConfig = copy.deepcopy(net.generation_config)
        self.config.update(
            num_beams=1, do_sample=False, temperature=None, top_k=None, top_p=None,
            num_return_sequences=1, return_dict_in_generate=False, early_stopping=False,
            length_penalty=None,
        )  # fmt: skip
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        end = self.config.eos_token_id
        ends = end if isinstance(end, list) else [end]
        self.ends: list[int] = [e for e in (*ends, tokenizer.eos_token_id) if e is not None]
        if not self.ends:
            raise UnsupportedArchitecture("neither model nor tokenizer has an end token")
        if self.config.pad_token_id is None:
            self.config.pad_token_id = tokenizer.pad_token_id
        limit = self.config.max_new_tokens or self.config.max_length or 20
        self.limit: int = limit  # the most tokens that an answer may have

    def until_end(self, ids: Sequence[int]) -> list[int]:
        """The ids up to and with the first end token."""
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        return list(ids[: end + 1])

    def express(self, answer: str, ids: Sequence[int]) -> list[int]:
        """The ids closed by an end token, if they really say the answer; `NotFixed` if not."""
        ids = self.until_end([*ids, self.ends[0]])
        if not answer.strip():
            raise NotFixed("the wanted answer is empty, and an empty answer cannot be aimed at")
        back = self.tokenizer.decode(ids, skip_special_tokens=True)
        if normal(back) != normal(answer):
            raise NotFixed(f"the tokenizer cannot express {answer!r}: it gives back {back!r}")
        if len(ids) > self.limit:
            raise NotFixed(
                f"{answer!r} takes {len(ids)} tokens, but the generation config stops after "
                f"{self.limit}; raise its max_new_tokens"
            )
        return list(ids)

    def worded(self, targets: Sequence[Sequence[int]]) -> list[str]:
        texts = self.tokenizer.batch_decode(list(targets), skip_special_tokens=True)
        return [text.strip() for text in texts]

    def process(self, net: PreTrainedModel, forced: Forced, logits: Tensor) -> Tensor:
        ids, lengths = self.given(forced)
        config, _ = net._prepare_generation_config(copy.deepcopy(self.config))
        net._prepare_special_tokens(config, True, device=logits.device)
        out = logits.clone()
        # One call for all positions with as many tokens before them: processors see whole batches.
        for begin, step in {*zip(lengths.tolist(), forced.step.tolist(), strict=True)}:
            config.max_length = begin + self.limit
            processors: LogitsProcessorList = net._get_logits_processor(
                config, input_ids_seq_length=begin, encoder_input_ids=forced.inputs["input_ids"],
                logits_processor=LogitsProcessorList(), device=logits.device,
            )  # fmt: skip
            at = ((lengths == begin) & (forced.step == step)).nonzero()[:, 0]
            if len(processors):
                out[at] = processors(ids[forced.row[at], : begin + step], logits[at].clone())
        return out

    def some_targets(self, n: int) -> list[list[int]]:
        return [self.ends[:1]] * n

    @abstractmethod
    def given(self, forced: Forced) -> tuple[Tensor, Tensor]:
        """The ids that generation would have had, and how many of them it started from."""

    def logits(self, output: Any, forced: Forced) -> Tensor:
        found: Tensor = output.logits[forced.row, forced.column]
        return found


class Seq2Seq(Generate):
    """Encoder reads the text, decoder writes the answer."""

    name = "seq2seq"

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        start = self.config.decoder_start_token_id
        start = net.config.decoder_start_token_id if start is None else start
        self.start: int = self.config.bos_token_id if start is None else start
        self.config.decoder_start_token_id = self.start

    def target(self, text: str, answer: str) -> list[int]:
        ids = self.tokenize(text_target=answer).input_ids
        return self.express(answer, ids)

    def said(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        inputs = {k: v.to(net.device) for k, v in self.encode(texts).items()}
        ids = net.generate(**inputs, generation_config=self.config)
        return [self.until_end(row) for row in ids[:, 1:].tolist()]

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> Forced:
        inputs = self.encode(texts)
        width = max(map(len, targets))
        ids = torch.full((len(texts), width), int(self.config.pad_token_id))
        ids[:, 0] = self.start
        for i, target in enumerate(targets):
            ids[i, 1 : len(target)] = torch.tensor(target[:-1])
        inputs["decoder_input_ids"] = ids
        row = torch.tensor([i for i, t in enumerate(targets) for _ in t])
        column = torch.tensor([j for t in targets for j in range(len(t))])
        tokens = torch.tensor([token for t in targets for token in t])
        return Forced(inputs, row, column, tokens, column)

    def given(self, forced: Forced) -> tuple[Tensor, Tensor]:
        return forced.inputs["decoder_input_ids"], torch.ones_like(forced.row)

    def head_inputs(self, net: PreTrainedModel, forced: Forced) -> dict[str, Tensor]:
        any_id = torch.zeros(1, 1, dtype=torch.long, device=net.device)
        states = torch.zeros(1, 1, 1, device=net.device)
        return {"decoder_input_ids": any_id, "encoder_outputs": states}


class Causal(Generate):
    """Prompt in, completion out; through the chat template where there is one."""

    name = "causal"

    def prompt(self, text: str) -> str:
        """The text as the model is really asked it."""
        if not text.strip():
            raise BadInput("an empty text was given; a prompt needs at least one word")
        if not self.tokenizer.chat_template:
            return text
        turns = [{"role": "user", "content": text}]
        asked = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return str(asked)

    def ids(self, text: str) -> list[int]:
        """The prompt's ids; a template brings its own special tokens."""
        special = not self.tokenizer.chat_template
        inputs = self.encode([self.prompt(text)], add_special_tokens=special)
        return inputs["input_ids"][0].tolist()

    def target(self, text: str, answer: str) -> list[int]:
        prompt, special = self.prompt(text), not self.tokenizer.chat_template
        space = "" if prompt[-1:].isspace() else " "
        before = self.tokenize(prompt, add_special_tokens=special).input_ids
        whole = self.tokenize(prompt + space + answer, add_special_tokens=special).input_ids
        if whole[: len(before)] != before:  # the boundary was merged: the answer by itself then
            whole = before + self.tokenize(space + answer, add_special_tokens=False).input_ids
        return self.express(answer, whole[len(before) :])

    def said(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        prompts, special = [self.prompt(t) for t in texts], not self.tokenizer.chat_template
        inputs = self.encode(prompts, side="left", add_special_tokens=special)
        begin = inputs["input_ids"].shape[1]
        ids = net.generate(
            **{k: v.to(net.device) for k, v in inputs.items()}, generation_config=self.config
        )
        return [self.until_end(row) for row in ids[:, begin:].tolist()]

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> Forced:
        prompts = [self.ids(text) for text in texts]
        whole = [p + list(t[:-1]) for p, t in zip(prompts, targets, strict=True)]
        ids = torch.full((len(texts), max(map(len, whole))), int(self.tokenizer.pad_token_id))
        mask = torch.zeros_like(ids)
        for i, one in enumerate(whole):
            ids[i, : len(one)], mask[i, : len(one)] = torch.tensor(one), 1
        row = torch.tensor([i for i, t in enumerate(targets) for _ in t])
        step = torch.tensor([j for t in targets for j in range(len(t))])
        begin = torch.tensor([len(p) for p in prompts])
        tokens = torch.tensor([token for t in targets for token in t])
        inputs = {"input_ids": ids, "attention_mask": mask}
        return Forced(inputs, row, begin[row] - 1 + step, tokens, step)

    def given(self, forced: Forced) -> tuple[Tensor, Tensor]:
        return forced.inputs["input_ids"], forced.column + 1 - forced.step

    def head_inputs(self, net: PreTrainedModel, forced: Forced) -> dict[str, Tensor]:
        return {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=net.device)}


def two(logits: Tensor) -> Tensor:
    """A single yes/no logit as two: 0 for no, itself for yes."""
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], dim=-1)


TASKS: dict[str, type[Task]] = {t.name: t for t in (Classify, Seq2Seq, Causal)}
