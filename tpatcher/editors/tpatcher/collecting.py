"""Collecting a memory: which positions of which texts it holds, and how they get there."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import chain
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpatcher.editors.tpatcher import background as backgrounds
from tpatcher.editors.tpatcher.contexts import others_in_contexts
from tpatcher.example import Example, text_of
from tpatcher.models.everywhere import read, readings
from tpatcher.models.model import Model
from tpatcher.models.traces import Trace, traces
from tpatcher.nets.causal import Causal, finished
from tpatcher.nets.reading import Reads

# What a position is of: an answer, the prompt before it, a document or conversation that was
# given, the background written for every language model, and what the model itself sampled.
KINDS = ("answers", "prompts", "documents", "background", "sampled")
# Of a language model's questions, these are followed along its own answers. Of the others, what is
# held ends where an answer begins: one pass, where generating one would take twenty.
FOLLOWED = 256


def collect(
    model: Model,
    items: Sequence[str | Example],
    layer: int,
    reads: Reads,
    background: bool,
    skip_bos: bool,
) -> Iterator[tuple[Trace, Tensor]]:
    """Traces of the items and of the background, whose owners are items or -1, and their kinds.

    | item | positions |
    |---|---|
    | a text | along the model's own answer; of a language model with a background, the prompt too |
    | such a text after the first `FOLLOWED` | the prompt, which ends where an answer begins |
    | an `Example` | along its right answer |
    | a `Document`, or a conversation that ends with an answer | all of them |
    """
    everywhere = background and backgrounds.wanted(model)
    whole = [i for i, item in enumerate(items) if _read_whole(model, item, everywhere)]
    others = sorted({*range(len(items))}.difference(whole))
    for part, _, seen in traces(model, [items[i] for i in others], layer, reads=reads):
        seen.owner = torch.tensor([others[k] for k in part])[seen.owner]
        seen = without_bos(model, seen) if skip_bos else seen
        yield seen, torch.zeros(len(seen.owner), dtype=torch.uint8)
    texts = [text_of(items[i]) for i in whole]
    given = readings(model, texts, followed=FOLLOWED) if whole else iter(())
    owners = torch.tensor([*whole, -1])  # the background's index, -1, stays
    more = [backgrounds.background(model), others_in_contexts(model)] if everywhere else []
    for found in read(model, chain(given, *more), layer, reads):
        found.trace.owner = owners[found.trace.owner]
        kinds = [KINDS.index(kind) for kind in found.kinds]
        yield found.trace, torch.tensor(kinds, dtype=torch.uint8)


def _read_whole(model: Model, item: str | Example, everywhere: bool) -> bool:
    """Whether all positions of an item are held, and not its answer's alone."""
    if isinstance(item, Example) or not isinstance(model.task, Causal):
        return False
    return everywhere or finished(item)


def without_bos(model: Model, seen: Trace) -> Trace:
    """A trace without the first positions of answers that say a token which is always the same."""
    config = getattr(model.net, "generation_config", None)
    always = [model.tokenizer.bos_token_id, getattr(config, "forced_bos_token_id", None)]
    always = [token for token in always if token is not None]
    if not model.task.generates or not always:
        return seen
    first = seen.owner.diff(prepend=torch.tensor([-1])) != 0
    keep = ~(first & torch.isin(seen.tokens, torch.tensor(always)))
    return Trace(**{name: held[keep.to(held.device)] for name, held in vars(seen).items()})


def gather(
    batches: Iterable[tuple[Trace, Tensor]], text_width: int, dtype: torch.dtype, map_above: int
) -> dict[str, Any]:
    """The arrays of a memory, by name, from traces and the kinds of their positions.

    The last `text_width` columns of the traces' queries are the text's state.
    """
    few = dict[str, list[Tensor]](answers=[], gap=[], owner=[], kinds=[], text_index=[])
    texts, width = TextStates(), dict.fromkeys(("queries", "states", "text_states"), 0)
    with ExitStack() as stack:  # to unnamed files first, so that nothing is ever held twice
        files: dict[str, Any] = {n: stack.enter_context(TemporaryFile()) for n in width}
        for seen, kind in batches:
            queries, states = (one.to(dtype).cpu() for one in (seen.queries, seen.states))
            end = queries.shape[1] - text_width
            blocks = {"queries": queries[:, :end], "states": states}
            if text_width:
                index, blocks["text_states"] = texts.add(queries[:, end:])
                few["text_index"].append(index)
            for name, block in blocks.items():
                width[name] = block.shape[1]
                files[name].write(block.numpy().tobytes())
            found = {"answers": seen.best, "gap": seen.gap, "owner": seen.owner, "kinds": kind}
            for name, one in found.items():
                few[name].append(one)
        large = {n: _held(file, dtype, width[n], map_above) for n, file in files.items()}
    return {**large, **{name: torch.cat(parts) if parts else None for name, parts in few.items()}}


class TextStates:
    """The states of texts, each once: all positions of an answer have the same one."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}

    def add(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Which state (P,) each of these (P, t) is, and those among them that are new."""
        begins = torch.ones(len(states), dtype=torch.bool)
        begins[1:] = (states[1:] != states[:-1]).any(1)
        ones, new = states[begins], []
        index = torch.empty(len(ones), dtype=torch.long)
        for i, one in enumerate(ones):
            digest = blake2b(one.numpy().tobytes(), digest_size=16).digest()
            if digest not in self.known:
                self.known[digest] = len(self.known)
                new.append(i)
            index[i] = self.known[digest]
        return index[begins.cumsum(0) - 1], ones[new]


def _held(file: Any, dtype: torch.dtype, width: int, map_above: int) -> Tensor | None:
    """The rows that were written to an unnamed file: in memory, or mapped where they are many."""
    if width == 0:
        return None
    kind = np.float16 if dtype == torch.float16 else np.float32
    size = file.tell()
    if size > map_above:
        array: Any = np.memmap(file, dtype=kind, mode="r+", shape=(size // kind().nbytes,))
    else:
        file.seek(0)
        array = np.fromfile(file, dtype=kind)
    return torch.from_numpy(array).view(-1, width)
