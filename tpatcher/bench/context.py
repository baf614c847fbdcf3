"""What jobs on the same model and data share: the initial model, its data, its answers."""

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from tpatcher import files
from tpatcher.batches import batches
from tpatcher.bench.job import Job, digest
from tpatcher.data import dataset, read_texts
from tpatcher.data.builtin import grouped
from tpatcher.data.split import Split
from tpatcher.editors import Editor, TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.tpatcher.paper import Paper
from tpatcher.editors.trained.base import Trained
from tpatcher.errors import BadInput, Damaged
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.models.traces import Trace
from tpatcher.nets.reading import VERSION

BATCH = 64


@dataclass
class Context:
    """The initial model f0 with its data, opened once for all jobs that share them."""

    job: Job  # of the jobs that share this, what they have in common
    model: Model
    split: Split
    memory: list[Example]
    traffic: list[str]  # unlabelled, the rest of the memory
    retained: dict[str, AnswerCache]  # D_tr and D_test, with the answers of f0
    cache_dir: Path  # what is expensive to make is kept here, for other processes too
    progress: bool = False

    @classmethod
    def open(
        cls, job: Job, cache_dir: Path, device: str | None = None, progress: bool = False
    ) -> Self:
        """Load the job's model, divide its data up, and see what f0 says to D_tr and D_test."""
        options: dict[str, Any] = {"exclude": job.exclude} if job.exclude else {}
        if job.skip_bad:
            options["skip_bad"] = True
        model = load(job.model, device=device, encoder=job.encoder)
        split = dataset(job.data, job.path, **options)
        n_test = job.n_train if job.n_test is None else job.n_test
        d_train, memory = split.retained(job.n_train, job.memory_size, job.seed)
        test = list(split.test)
        if job.demo:
            test = Random(job.seed).sample(test, n_test)
        else:
            Random(job.seed).shuffle(test)
        extra, test = test[: job.extra_from_test], test[job.extra_from_test :]
        split = replace(split, edit=[*split.edit, *extra], test=test)
        traffic: list[str] = []
        if job.traffic:
            room = job.memory_size - len(memory)
            if not room:
                raise BadInput(
                    f"the {job.memory_size} memory examples leave no room for traffic: "
                    "ask for a larger memory"
                )
            used = {e.text for part in (memory, d_train, split.edit, test) for e in part}
            used.update(text for e in split.edit for text in e.rephrasings)
            traffic = _unused_texts(job, used)[:room]
        retained = {
            name: _answers(model, examples, cache_dir, progress)
            for name, examples in (("train", d_train), ("test", test[:n_test]))
        }
        return cls(job.context, model, split, memory, traffic, retained, cache_dir, progress)

    @property
    def lessons(self) -> list[Example]:
        """All training examples but those of D_tr: what trained editors learn from."""
        kept = {example.text for example in self.retained["train"].examples}
        return [example for example in self.split.train if example.text not in kept]

    def stream(self, job: Job) -> tuple[list[Example], int]:
        """The examples of the job's folder in a seeded order, and how many of them f0 has wrong."""
        if job.folders:
            found = self.split.folders(job.folders, job.seed)[job.folder]
        else:
            found = list(self.split.edit)
            Random(job.seed).shuffle(found)
        found = found[: job.limit]
        stream: list[Example] = []
        mistakes = 0
        for part in batches(found, BATCH):
            for example, right in zip(part, self.model.correct(part), strict=True):
                if not (right and job.demo):
                    stream.append(example)
                if not right:
                    mistakes += 1
                if mistakes == job.edits:
                    return stream, mistakes
        return stream, mistakes

    def fitted(self, job: Job) -> Editor:
        """The job's editor, fitted; an expensive fit is kept on disk, and found there again."""
        editor = job.new_editor()
        if isinstance(editor, TPatcher):
            return editor.fit(self.model, self._memory(editor))
        if job.traffic:
            raise BadInput(f"{job.editor} keeps no memory of queries that traffic could fill")
        if not isinstance(editor, Trained):
            return editor.fit(self.model, self.memory)
        # rephrasings come with the built-in examples if those are grouped
        examples = grouped(job.data) if job.data.startswith("builtin-") else self.lessons
        held_out = list(self.split.val)  # D_val tells it when to stop
        every = (*examples, *held_out)
        lines = "\n".join(f"{e.text}\t{e.answer}\t{len(e.rephrasings)}" for e in every)
        about = [self.model.base.fingerprint, editor.fit_key(), lines, *editor.versions()]
        name = f"{job.editor}-{digest(json.dumps(about, sort_keys=True))[:16]}"
        editor.checkpoint = self.cache_dir / name
        editor.progress = self.progress
        return editor.fit(self.model, examples, held_out)

    def _memory(self, editor: TPatcher) -> Memory:
        """T-Patcher's memory of these examples and texts, as its solver wants it."""
        items = [*editor.solver.items(self.memory), *self.traffic]
        paper = isinstance(editor.solver, Paper)  # D_val tells it when to stop
        held_out, skip_bos = list(self.split.val) if paper else [], editor.solver.skips_bos
        background = editor.solver.background and self.model.task.name == "causal"
        lines = [
            f"{i}\t" if isinstance(i, str) else f"{i.text}\t{i.answer}"
            for i in [
                *items,
                *(["without <s>"] if skip_bos else []),
                *(["with a background"] if background else []),
                *held_out,
            ]
        ]
        layer, reads = editor.layer, editor.reads(self.model)
        kind = layer if reads == "position" else f"{layer} {reads} {VERSION}"
        about = f"{self.model.base.fingerprint} {kind} " + "\n".join(lines)
        return Memory.cached(
            self.cache_dir / f"memory-{digest(about)[:16]}",
            self.model,
            items,
            layer=layer,
            reads=reads,
            progress=self.progress,
            held_out=held_out,
            skip_bos=skip_bos,
            background=editor.solver.background,
        )


def _answers(
    model: Model, examples: Sequence[Example], cache_dir: Path, progress: bool
) -> AnswerCache:
    """Examples with f0's answers, which take minutes where they are many and so are kept."""
    texts = "\n".join(e.text for e in examples)
    about = f"{model.base.fingerprint} {VERSION} {texts}"
    name = f"paths-{digest(about)[:16]}.safetensors"
    kept = cache_dir / name
    if kept.exists():
        try:
            seen = Trace(**load_file(kept))
        except (SafetensorError, TypeError) as error:
            raise Damaged(f"{kept} cannot be read: {error}; remove it") from error
        device = model.net.device  # as a trace has it: the rest stays on the CPU
        seen.queries, seen.states = seen.queries.to(device), seen.states.to(device)
        return AnswerCache(model, examples, known=seen)
    answers = AnswerCache(model, examples, progress=progress)
    if answers.usable and examples:
        cache_dir.mkdir(parents=True, exist_ok=True)
        files.write_atomic(kept, save({k: v.contiguous() for k, v in vars(answers.trace).items()}))
    return answers


def _unused_texts(job: Job, used: Set[str]) -> list[str]:
    """The texts of the job's traffic, shuffled per file, without those used elsewhere in it."""
    found: dict[str, None] = {}
    for file in job.traffic:
        texts = read_texts(file, skip_bad=job.skip_bad)
        Random(job.seed).shuffle(texts)
        found.update((text, None) for text in texts if text not in used)
    return list(found)
