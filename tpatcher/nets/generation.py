"""Texts that are generated: what every such task shares, and the encoder-decoder."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import LogitsProcessor, LogitsProcessorList

from tpatcher.errors import BadInput, NotFixed, UnsupportedArchitecture
from tpatcher.example import normal
from tpatcher.nets.tasks import Task, TeacherForced, on_device

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

    def __init__(
        self,
        net: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int | None = None,
    ) -> None:
        super().__init__(net, tokenizer)
        self.config: GenerationConfig = copy.deepcopy(net.generation_config)
        self.config.update(**GREEDY)
        if max_new_tokens is not None:
            if max_new_tokens < 1:
                raise BadInput(f"max_new_tokens must be at least 1; found {max_new_tokens}")
            self.config.update(max_new_tokens=max_new_tokens, max_length=None)
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
        if self.config.max_length is None:
            self.config.max_new_tokens = self.limit

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
                f"{answer!r} takes {len(ids)} tokens, but answers are cut after {self.limit}; load "
                f"the model with max_new_tokens={len(ids)} or more (--max-new-tokens)"
            )
        return list(ids)

    @property
    def stopping(self) -> dict[str, Any]:
        """What generation needs beside its config: strings to stop at are found in text."""
        return {"tokenizer": self.tokenizer} if self.config.stop_strings else {}

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
            if step < 0:  # read, not generated: no processor sees it
                continue
            config.max_length = begin + self.limit
            processors: LogitsProcessorList = net._get_logits_processor(
                config,
                input_ids_seq_length=begin,
                encoder_input_ids=forced.inputs["input_ids"],
                logits_processor=LogitsProcessorList(),
                device=logits.device,
            )
            if not len(processors):  # which of them there are is the same at every position
                break
            here = ((lengths == begin) & (forced.step == step)).nonzero()[:, 0]
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

    def __init__(
        self,
        net: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int | None = None,
    ) -> None:
        super().__init__(net, tokenizer, max_new_tokens)
        start = self.config.decoder_start_token_id
        start = net.config.decoder_start_token_id if start is None else start
        self.start: int = self.config.bos_token_id if start is None else start
        self.config.decoder_start_token_id = self.start

    def target(self, text: str, answer: str) -> list[int]:
        ids = self.tokenize(text_target=answer).input_ids
        return self.expressible(answer, ids)

    def predict(
        self, net: PreTrainedModel, texts: Sequence[str], watcher: LogitsProcessor | None = None
    ) -> list[list[int]]:
        """Answers as token ids; a watcher is called for every token, last of all processors."""
        inputs = on_device(self.encode(texts), net.device)
        watching = {} if watcher is None else {"logits_processor": LogitsProcessorList([watcher])}
        options = {**watching, **self.stopping}
        ids = net.generate(**inputs, generation_config=self.config, **options)
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
