"""A background for language models: ordinary text that no fix may change, whatever the traffic.

A key is the half-space that holds its mistake and none of the memory. Where the memory is of
questions alone, text of any other kind may lie in there too; with every position of varied text in
the memory, and of what the model itself writes when nothing is asked, it does not.
"""

from collections.abc import Iterator
from functools import cache, lru_cache

import torch

from tpatcher.data import background as written
from tpatcher.errors import BadInput
from tpatcher.models.everywhere import Reading, readings
from tpatcher.models.model import Model
from tpatcher.nets.causal import Causal
from tpatcher.nets.seeded import seeded
from tpatcher.nets.tasks import on_device

SAMPLES, LENGTH, TOGETHER = 256, 64, 64  # texts that the model samples, their tokens, in one run
FOLLOWED = 4  # of the written questions, every so many-th is followed along the model's answer
FREELY = {"do_sample": True, "num_beams": 1, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
STRANGE = 0.02  # share of unknown tokens from which a tokenizer is not one for ordinary text


def wanted(model: Model) -> bool:
    """Whether a background says anything to this model: a language model of ordinary text."""
    return isinstance(model.task, Causal) and _ordinary(model.task)


@lru_cache(maxsize=8)
def _ordinary(task: Causal) -> bool:
    """Whether a task's tokenizer is one for ordinary text."""
    ids = task.tokenize(_sample(), verbose=False).input_ids
    return ids.count(task.tokenizer.unk_token_id) <= STRANGE * len(ids)


def background(model: Model) -> Iterator[Reading]:
    """Text and questions written for this purpose, and what the model samples from nothing."""
    asked = written.questions()
    followed, others = asked[::FOLLOWED], [text for i, text in enumerate(asked) if i % FOLLOWED]
    for one in readings(model, [*written.documents(), *followed]):
        yield Reading(one.ids, -1, "background")
    for one in readings(model, others, followed=0):  # up to where an answer begins
        yield Reading(one.ids, -1, "background")
    for start in _starts(model):
        yield from (Reading(ids, -1, "sampled") for ids in _sampled(model, start, SAMPLES // 2))


def _starts(model: Model) -> list[list[int]]:
    """An empty text, and an empty user turn where there is a chat template."""
    task = model.task
    assert isinstance(task, Causal)
    first = model.tokenizer.bos_token_id
    empty = [task.ends[0] if first is None else first]
    if not model.tokenizer.chat_template:
        return [empty, empty]
    turn = [{"role": "user", "content": ""}]
    try:
        asked = model.tokenizer.apply_chat_template(
            turn, tokenize=True, add_generation_prompt=True, return_dict=False
        )
    except Exception:  # a template is a program of its own: this one wants words
        return [empty, empty]
    return [empty, list(asked)]


@torch.inference_mode()
def _sampled(model: Model, start: list[int], n: int, seed: int = 0) -> Iterator[list[int]]:
    """n texts that the model samples after a start, the same every time."""
    task, net = model.task, model.net
    assert isinstance(task, Causal)
    length = min(LENGTH, task.context - len(start))
    if length < 1:
        raise BadInput(f"the model's context of {task.context} tokens leaves no room for a text")
    inputs, pad = torch.tensor([start]), task.config.pad_token_id
    with seeded(seed, net.device):
        for begin in range(0, n, TOGETHER):
            ids = inputs.expand(min(TOGETHER, n - begin), -1)
            given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            made = net.generate(
                **on_device(given, net.device), **FREELY, max_new_tokens=length, pad_token_id=pad
            )
            for row in made.tolist():
                yield start + task.until_end(row[len(start) :])


@cache
def _sample() -> str:
    """A little of every document."""
    return "\n".join(text[:200] for text in written.documents())
