"""Language models: the completion of a prompt, through the chat template where there is one."""

import copy
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Self

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from tpatcher.batches import batches
from tpatcher.errors import BadInput, NotFixed
from tpatcher.example import Conversation, Document, refuse_empty
from tpatcher.nets.generation import Generate
from tpatcher.nets.tasks import TeacherForced, on_device


def finished(asked: str) -> bool:
    """Whether a text needs no answer: a document, or a conversation that ends with one."""
    if isinstance(asked, Conversation):
        return asked.messages[-1]["role"] == "assistant"
    return isinstance(asked, Document)


def _shared(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """What both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [a for a, _ in pairs]


class Causal(Generate):
    """Prompt in, completion out; through the chat template where there is one."""

    name = "causal"

    apply_template = True

    def for_prompts(self) -> Self:
        other = copy.copy(self)
        other.apply_template = False
        return other

    def limited(self, tokens: int) -> Self:
        """The same task with answers of at most so many tokens."""
        other = copy.copy(self)
        other.config, other.limit = copy.deepcopy(self.config), tokens
        other.config.update(max_new_tokens=tokens, max_length=None)
        return other

    def prompt(self, text: str) -> str:
        if isinstance(text, Conversation):
            return self._in_template(text)
        refuse_empty(text)
        if not (self.tokenizer.chat_template and self.apply_template):
            return text
        return self._in_template(Conversation([{"role": "user", "content": text}]))

    def _in_template(self, asked: Conversation) -> str:
        """Messages as the chat template writes them, up to where the answer begins."""
        if not self.tokenizer.chat_template:
            raise BadInput(
                f"{len(asked.messages)} messages were given, but this model's tokenizer has no "
                "chat template: give one text, or a tokenizer whose chat_template is set"
            )
        turns = [dict(message) for message in asked.messages]
        write = self.tokenizer.apply_chat_template
        try:
            return str(write(turns, tokenize=False, add_generation_prompt=not finished(asked)))
        except Exception as error:  # a template is a program: some refuse a system message
            raise BadInput(f"the model's chat template refuses this: {error}") from error

    @property
    def turn(self) -> tuple[int, int] | None:
        """The special tokens by which a turn is found in all prompts of the chat template: that
        which comes last before a question (if none does, the other), and that which comes last
        after it (None if none does)."""
        if not self.tokenizer.chat_template:
            return None
        added = self.tokenizer.added_tokens_decoder.items()
        special = {*self.tokenizer.all_special_ids, *(i for i, token in added if token.special)}
        one, other = self.ids("Who?"), self.ids("It is.")
        before, after = _shared(one, other), _shared(one[::-1], other[::-1])
        end = next((token for token in after if token in special), None)
        if end is None:
            return None
        return next((token for token in reversed(before) if token in special), end), end

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
        ids = net.generate(
            **on_device(inputs, net.device), generation_config=config, **self.stopping
        )
        return [self.until_end(row) for row in ids[:, begin:].tolist()]

    def config_for(self, length: int) -> GenerationConfig:
        """The generation config for a prompt of `length` tokens: no answer outgrows the context."""
        if self.max_answer_tokens(length) == self.limit:
            return self.config
        config = copy.deepcopy(self.config)
        config.update(max_new_tokens=self.max_answer_tokens(length), max_length=None)
        return config

    def force(self, texts: Sequence[str], targets: Sequence[Sequence[int]]) -> TeacherForced:
        asked = self.encode([self.prompt(text) for text in texts], **self.special)
        lengths = asked["attention_mask"].sum(-1).tolist()
        prompts = [ids[:n].tolist() for ids, n in zip(asked["input_ids"], lengths, strict=True)]
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

    def pieces(self, text: str, size: int) -> list[list[int]]:
        """The ids of a text that is read, not answered, in pieces of at most `size` tokens."""
        if isinstance(text, Conversation):
            ids = self.tokenize(self.prompt(text), verbose=False, **self.special).input_ids
        else:
            ids = self.tokenize(str(text), verbose=False).input_ids
        size = min(size, self.context)
        return [list(part) for part in batches(ids, size)]

    def read(self, texts: Sequence[Sequence[int]], begins: Sequence[int]) -> TeacherForced:
        """The batch that reads these ids, with every position in it.

        An answer begins at `begins[i]`; before it, where nothing was generated, the step is -1.
        """
        ids = torch.full((len(texts), max(map(len, texts))), int(self.tokenizer.pad_token_id))
        mask = torch.zeros_like(ids)
        for i, one in enumerate(texts):
            ids[i, : len(one)], mask[i, : len(one)] = torch.tensor(one), 1
        row, column = mask.nonzero(as_tuple=True)
        following = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], self.ends[0])], dim=1)
        step = (column + 1 - torch.tensor(begins)[row]).clamp(min=-1)
        inputs = {"input_ids": ids, "attention_mask": mask}
        return TeacherForced(inputs, row, column, following[row, column], step)

    def prefix(self, forced: TeacherForced) -> tuple[Tensor, Tensor]:
        return forced.inputs["input_ids"], forced.column + 1 - forced.step

    def head_inputs(self, net: PreTrainedModel, forced: TeacherForced) -> dict[str, Tensor]:
        return {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=net.device)}
