"""Texts that are generated: by an encoder-decoder, or as the completion of a prompt."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import LogitsProcessorList

from tpatcher.errors import BadInput, NotFixed, UnsupportedArchitecture
from tpatcher.example import normal
from tpatcher.nets.tasks import Classify, Task, TeacherForced, on_device

# What turns any generation config into greedy decoding; its other processors stay.
GREEDY = {
    "num_beams": 1, "do_sample": False, "temperature": None, "top_k": None, "top_p": None,
    "num_return_sequences": 1, "return_dict_in_generate": False, "early_stopping": False,
    "length_penalty": None,
}  # fmt: skip


class Generate(Task):
    """A text, generated greedily on the model's own generation config."""

    generates = True
    begin = 0  # tokens that generation starts from and that count in a config's max_length

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        self.config: GenerationConfig = copy.deepcopy(net.generation_config)
        self.config.update(**GREEDY)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        end = self.config.eos_token_id
        ends = end if isinstance(end, list) else [end]
        self.ends: list[int] = [e for e in (*ends, tokenizer.eos_token_id) if e is not None]
        if not self.ends:
            raise UnsupportedArchitecture("neither model nor tokenizer has an end token")
        if self.config.pad_token_id is None:
            self.config.pad_token_id = tokenizer.pad_token_id
        # the most tokens that an answer may have; a total length counts the decoder's start too
        self.limit: int = self.config.max_new_tokens or (self.config.max_length or 20) - self.begin

    def until_end(self, ids: Sequence[int]) -> list[int]:
        """The ids up to and with the first end token."""
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        return list(ids[: end + 1])

    def expressible(self, answer: str, ids: Sequence[int]) -> list[int]:
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

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        texts = self.tokenizer.batch_decode(list(targets), skip_special_tokens=True)
        return [text.strip() for text in texts]

    def as_decoded(self, net: PreTrainedModel, forced: TeacherForced, logits: Tensor) -> Tensor:
        ids, lengths = self.prefix(forced)
        config, _ = net._prepare_generation_config(copy.deepcopy(self.config))
        net._prepare_special_tokens(config, True, device=logits.device)
        out = logits.clone()
        # One call for all positions with as many tokens before them: processors see whole batches.
        for begin, step in {*zip(lengths.tolist(), forced.step.tolist(), strict=True)}:
            config.max_length = begin + self.limit
            processors: LogitsProcessorList = net._get_logits_processor(
                config,
                input_ids_seq_length=begin,
                encoder_input_ids=forced.inputs["input_ids"],
                logits_processor=LogitsProcessorList(),
                device=logits.device,
            )
            here = ((lengths == begin) & (forced.step == step)).nonzero()[:, 0]
            if len(processors):
                before = ids[forced.row[here], : begin + step]
                out[here] = processors(before, logits[here].clone())
        return out

    def dummy_targets(self, n: int) -> list[list[int]]:
        return [self.ends[:1]] * n

    @abstractmethod
    def prefix(self, forced: TeacherForced) -> tuple[Tensor, Tensor]:
        """The ids that generation would have had at each position, and how many it started with."""

    def logits(self, output: Any, forced: TeacherForced) -> Tensor:
        found: Tensor = output.logits[forced.row, forced.column]
        return found


class Seq2Seq(Generate):
    """Encoder reads the text, decoder writes the answer."""

    name = "seq2seq"
    begin = 1

    def __init__(self, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(net, tokenizer)
        start = self.config.decoder_start_token_id
        start = net.config.decoder_start_token_id if start is None else start
        self.start: int = self.config.bos_token_id if start is None else start
        self.config.decoder_start_token_id = self.start

    def target(self, text: str, answer: str) -> list[int]:
        ids = self.tokenize(text_target=answer).input_ids
        return self.expressible(answer, ids)

    def predict(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        inputs = on_device(self.encode(texts), net.device)
        ids = net.generate(**inputs, generation_config=self.config)
        return [self.until_end(row) for row in ids[:, 1:].tolist()]

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> TeacherForced:
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
        return TeacherForced(inputs, row, column, tokens, column)

    def prefix(self, forced: TeacherForced) -> tuple[Tensor, Tensor]:
        return forced.inputs["decoder_input_ids"], torch.ones_like(forced.row)

    def head_inputs(self, net: PreTrainedModel, forced: TeacherForced) -> dict[str, Tensor]:
        any_id = torch.zeros(1, 1, dtype=torch.long, device=net.device)
        states = torch.zeros(1, 1, 1, device=net.device)
        return {"decoder_input_ids": any_id, "encoder_outputs": states}


class Causal(Generate):
    """Prompt in, completion out; through the chat template where there is one."""

    name = "causal"

    apply_template = True

    def for_prompts(self) -> Self:
        other = copy.copy(self)
        other.apply_template = False
        return other

    def prompt(self, text: str) -> str:
        if not text.strip():
            raise BadInput("an empty text was given; a prompt needs at least one word")
        if not (self.tokenizer.chat_template and self.apply_template):
            return text
        turns = [{"role": "user", "content": text}]
        template = self.tokenizer.apply_chat_template
        return str(template(turns, tokenize=False, add_generation_prompt=True))

    @property
    def special(self) -> dict[str, Any]:
        """How to tokenize a prompt: a chat template has written the special tokens already."""
        return {"add_special_tokens": not self.tokenizer.chat_template}

    def ids(self, text: str) -> list[int]:
        """The ids of the prompt."""
        return self.encode([self.prompt(text)], **self.special)["input_ids"][0].tolist()

    def target(self, text: str, answer: str) -> list[int]:
        prompt = self.prompt(text)
        space = "" if prompt[-1:].isspace() else " "
        before = self.tokenize(prompt, **self.special).input_ids
        whole = self.tokenize(prompt + space + answer, **self.special).input_ids
        if whole[: len(before)] != before:  # the boundary was merged: the answer by itself then
            whole = before + self.tokenize(space + answer, add_special_tokens=False).input_ids
        ids = self.expressible(answer, whole[len(before) :])
        if len(ids) > self.max_answer_tokens(len(before)):
            raise NotFixed(
                f"{answer!r} takes {len(ids)} tokens, but after a prompt of {len(before)} the "
                f"model's context of {self.context} ends; ask in fewer words"
            )
        return ids

    def max_answer_tokens(self, length: int) -> int:
        """How many tokens an answer may have after `length` others; the last one is never read."""
        return min(self.limit, max(1, self.context - length + 1))

    def predict(self, net: PreTrainedModel, texts: Sequence[str]) -> list[list[int]]:
        prompts = [self.prompt(text) for text in texts]
        inputs = self.encode(prompts, side="left", **self.special)
        begin = inputs["input_ids"].shape[1]
        if len(texts) > 1 and self.max_answer_tokens(begin) < self.limit:
            # alone, so that the longest prompt of a batch shortens no other's answer
            return [self.predict(net, [text])[0] for text in texts]
        config = self.config_for(begin)
        ids = net.generate(**on_device(inputs, net.device), generation_config=config)
        return [self.until_end(row) for row in ids[:, begin:].tolist()]

    def config_for(self, length: int) -> GenerationConfig:
        """The generation config for a prompt of `length` tokens: no answer outgrows the context."""
        if self.max_answer_tokens(length) == self.limit:
            return self.config
        config = copy.deepcopy(self.config)
        config.update(max_new_tokens=self.max_answer_tokens(length), max_length=None)
        return config

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> TeacherForced:
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
        return TeacherForced(inputs, row, begin[row] - 1 + step, tokens, step)

    def prefix(self, forced: TeacherForced) -> tuple[Tensor, Tensor]:
        return forced.inputs["input_ids"], forced.column + 1 - forced.step

    def head_inputs(self, net: PreTrainedModel, forced: TeacherForced) -> dict[str, Tensor]:
        return {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=net.device)}


TASKS: dict[str, type[Task]] = {t.name: t for t in (Classify, Seq2Seq, Causal)}
