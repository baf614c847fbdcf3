"""A model: text in, answer out, and the patches that it carries."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tpatcher.batches import batches
from tpatcher.errors import BadInput, NotRemovable, unknown
from tpatcher.example import Example
from tpatcher.nets import ffn
from tpatcher.nets import tail as tails
from tpatcher.nets.causal import Causal
from tpatcher.nets.generation import Generate, Seq2Seq
from tpatcher.nets.probe import Probe
from tpatcher.nets.reading import Reads, read_by
from tpatcher.nets.rows import Rows
from tpatcher.nets.sentences import Sentences
from tpatcher.nets.tasks import Classify, Task
from tpatcher.nets.text_reader import TURN
from tpatcher.nets.twin import twin
from tpatcher.patches import KINDS, hub, pack
from tpatcher.patches.base import Patch
from tpatcher.patches.neurons import Neurons, stack

TASKS: dict[str, type[Task]] = {t.name: t for t in (Classify, Seq2Seq, Causal)}


class Model:
    """A Transformers model and its tokenizer, with the patches that it carries.

    `net` and `tokenizer` are the Transformers objects themselves: `generate`, pipelines and
    trainers work on them and see a push at once.
    """

    def __init__(
        self,
        net: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        task: str,
        name: str = "",
        max_new_tokens: int | None = None,
        encoder: str = "",
    ) -> None:
        """`max_new_tokens` limits generated answers, if not the net's own generation config.
        `encoder` names a sentence encoder, by which fixes that read the text shall read it.
        """
        self.net, self.tokenizer = net.eval(), tokenizer
        self.name = name or net.name_or_path or type(net).__name__
        self.patches: tuple[Patch, ...] = ()
        self._probes: dict[tuple[int, Reads], Probe] = {}
        self._rows: dict[int, Rows] = {}
        ffn.find(net)  # refuse at once what can never be patched
        for key, parameter in net.named_parameters():
            if not torch.isfinite(parameter).all():
                raise BadInput(f"{self.name}: {key} holds NaN or infinity; load sound weights")
        self.tail, self.task = tails.find(net, _task(task, net, tokenizer, max_new_tokens))
        if isinstance(self.task, Causal) and (turn := self.task.turn) is not None:
            vars(net)[TURN] = turn
        self.base, self.encoder = pack.Base(self.name, fingerprint(net)), encoder
        if encoder:
            sentences = Sentences(encoder, tokenizer)
            read_by(net, sentences)
            made_for = f"{self.base.fingerprint}+{sentences.fingerprint}"
            self.base = pack.Base(self.name, made_for)

    @torch.inference_mode()
    def answer(self, texts: Sequence[str], batch: int = 32) -> list[str]:
        """The model's answers, really run; a single text may not be given as a string."""
        if isinstance(texts, str):
            raise BadInput("answer takes a list of texts; put the one text into a list")
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little padding
        out = [""] * len(texts)
        spoken = self.answers_of_patches(texts, batch)
        for i, text in spoken.items():
            out[i] = text
        order = [i for i in order if i not in spoken]
        for part in batches(order, batch):
            answers = self.task.answer(self.net, [texts[i] for i in part])
            for i, text in zip(part, answers, strict=True):
                out[i] = text
        return out

    @torch.inference_mode()
    def answers_of_patches(self, texts: Sequence[str], batch: int = 32) -> dict[int, str]:
        """The answers that patches give themselves, in the place of the net, by index."""
        speaking = [p for p in self.patches if p.answers_itself]
        found: dict[int, str] = {}
        if not speaking:
            return found
        net = self.unpatched().net
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for part in batches(order, batch):
            for kind in {type(p) for p in speaking}:
                answers = kind.answers(net, self.task, speaking, [texts[i] for i in part])
                found |= {part[k]: text for k, text in answers.items()}
        return found

    def correct(self, examples: Sequence[Example]) -> list[bool]:
        """Whether each example is answered with one of its right answers."""
        answers = self.answer([e.text for e in examples])
        return [self.accepts(e, a) for e, a in zip(examples, answers, strict=True)]

    def accepts(self, example: Example, answer: str) -> bool:
        """Whether an answer that this model gave is right; a label may be named or numbered."""
        right, *also = (self.task.canonical(a) for a in (example.answer, *example.also))
        return replace(example, answer=right, also=tuple(also)).accepts(answer)

    def push(self, patch: Patch) -> None:
        """Add one more patch. Not for concurrent use: change a twin, then swap the reference."""
        if any(p.id == patch.id for p in self.patches):
            raise BadInput(f"the model has patch {patch.id} already")
        patch.check(self.net)
        self._set_patches((*self.patches, patch))

    def pop(self) -> Patch:
        """Take the newest patch off and return it."""
        if not self.patches:
            raise BadInput("the model has no patch to take off")
        last = self.patches[-1]
        self._set_patches(self.patches[:-1])
        return last

    def remove(self, id: str) -> list[Patch]:
        """Take one patch off, bit for bit. Returns newer fixes that depended on it and broke."""
        ids = [p.id for p in self.patches]
        if id not in ids:
            raise BadInput(f"the model has no patch {id!r}; it has {', '.join(ids) or 'none'}")
        index = ids.index(id)
        gone, newer = self.patches[index], self.patches[index + 1 :]
        if newer and not gone.removable_alone:
            raise NotRemovable(
                f"patch {id} changes weights that {len(newer)} newer ones were made on top of; "
                "take those off first"
            )
        self._set_patches(self.patches[:index] + newer)
        depending = [p for p in newer if isinstance(p, Neurons) and id in p.depends_on]
        known = [(p, p.example) for p in depending if p.example]
        right = self.correct([example for _, example in known]) if known else []
        return [p for (p, _), ok in zip(known, right, strict=True) if not ok]

    def set_patches(self, patches: Iterable[Patch]) -> None:
        """Carry exactly these patches, in this order."""
        wanted = tuple(patches)
        for patch in {
            p.check_key: p for p in wanted
        }.values():  # not 10,000 times the same question
            patch.check(self.net)
        self._set_patches(wanted)

    def twin(self) -> "Model":
        """The same model over the same tensors, to be edited and checked by itself."""
        other = copy(self)
        other.net = twin(self.net)
        # what is seen before the last layer is the same, for any thread
        other._probes = {key: probe for key, probe in self._probes.items() if key[0] == -1}
        other._rows = {}
        return other

    def unpatched(self) -> "Model":
        """A twin without patches: f0, the model as it was loaded."""
        other = self.twin()
        other.set_patches(())
        return other

    def without_last_layer(self) -> "Model":
        """A twin without the last layer's patches, which change nothing before themselves."""
        other = self.twin()
        other.set_patches(p for p in self.patches if not is_last(p))
        return other

    def before_cacheable(self) -> "Model":
        """A twin without the patches whose answers follow from cached ones."""
        other = self.twin()
        other.set_patches(p for p in self.patches if not (is_last(p) or p.answers_itself))
        return other

    def rows(self, layer: int = -1) -> Rows:
        """The neurons that the patches have in one layer, on the net's device."""
        if layer not in self._rows:
            width = ffn.find(self.net, layer).width
            self._rows[layer] = stack(self.patches, layer, width)
        return self._rows[layer].to(self.net.device)

    def save_patches(self, directory: str | Path, text: bool = True) -> None:
        """Save the patches as a pack; without `text`, the reported examples are left out."""
        pack.write(directory, self.patches, self.base, text=text)

    def push_patches(self, name: str, text: bool = True, private: bool = True) -> str:
        """Put the patches on the Hugging Face hub as `user/name`; returns the commit's address.

        A new repository is private unless asked otherwise: the patches hold the reported texts,
        except without `text`. `tp.load(base, patches="user/name")` puts them on again.
        """
        return hub.push(self.patches, self.base, name, text=text, private=private)

    def probe(self, layer: int = -1, reads: Reads = "position") -> Probe:
        """A probe of one layer's queries and of the tail's states. What the last layer's patches
        change comes after both, so a probe of the last layer runs without them."""
        if (layer, reads) not in self._probes:
            names = [ffn.find(self.net, layer).first, *(self.tail.names if self.tail else [])]
            net = (self.without_last_layer() if layer == -1 else self).net
            self._probes[layer, reads] = Probe(net, names, reads)
        return self._probes[layer, reads]

    @cached_property
    def n_layers(self) -> int:
        """How many layers could carry patches."""
        return len(ffn.layers(self.net))

    @property
    def tail_is_exact(self) -> bool:
        """Whether cached states tell the answers: all patches are neurons of the last layer."""
        return self.tail is not None and all(map(is_last, self.patches))

    @property
    def is_cacheable(self) -> bool:
        """Whether its answers follow from cached ones: patches may also answer by themselves."""
        return self.tail is not None and all(is_last(p) or p.answers_itself for p in self.patches)

    def _set_patches(self, patches: tuple[Patch, ...]) -> None:
        before = self.patches
        for kind in KINDS.values():
            kind.apply(self.net, before, patches)
        self.patches, self._rows = patches, {}
        moved = {p.id for p in before}.symmetric_difference(p.id for p in patches)
        if not all(is_last(p) for p in (*before, *patches) if p.id in moved):
            self._probes = {}


def _task(
    name: str, net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> Task:
    """The task of this name for a net; only what is generated has a limit."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    kind = TASKS[name]
    if issubclass(kind, Generate):
        return kind(net, tokenizer, limit)
    if limit is not None:
        raise BadInput(f"max_new_tokens={limit} was given, but a model that classifies writes none")
    return kind(net, tokenizer)


def is_last(patch: Patch) -> bool:
    """Whether a patch is neurons of the last layer, which change nothing before themselves."""
    return isinstance(patch, Neurons) and patch.layer == -1


def fingerprint(net: PreTrainedModel) -> str:
    """A short hash of a net's config and of 256 values of each of its tensors."""
    about = {k: net.config.to_dict().get(k) for k in ("model_type", "vocab_size", "id2label")}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for key, tensor in sorted(net.state_dict().items()):
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
        flat = tensor.detach().flatten()
        digest.update(flat[:: max(1, len(flat) // 256)][:256].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
