"""One job of the benchmark: an editor on one stream of mistakes, or on one folder of many."""

import hashlib
import json
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from tpatcher import files, sme
from tpatcher.bench import activations
from tpatcher.data import dataset, read_texts
from tpatcher.data.builtin import FACTS, grouped
from tpatcher.data.split import Split
from tpatcher.editors import EDITORS, Editor, TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.editors.trained.base import Trained
from tpatcher.errors import BadInput, Damaged
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.models.retention import AnswerCache
from tpatcher.models.traces import Trace
from tpatcher.patches.codebook import Codebook

SCORES = "scores.json"


@dataclass(frozen=True)
class Job:
    """Everything that decides a result."""

    model: str
    data: str
    editor: str = "t-patcher"
    fields: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    without: Path | None = None
    traffic: tuple[Path, ...] = ()  # files of unlabelled texts that join the memory
    folders: int = 0  # 0: the whole edit set as one stream
    folder: int = 0
    edits: int | None = None  # the stream ends with so many mistakes of f0
    most: int | None = None  # or after so many examples
    tr: int = 10_000
    test: int | None = None  # as many as D_tr if not given
    memory: int = 40_000
    every: int | None = None
    given: int = 0
    longer: int = 0  # so many examples of D_test go into the edit set
    seed: int = 0
    skip_bad: bool = False

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]

    @property
    def key(self) -> str:
        """A name for people, and a hash of everything that decides the result."""
        said = json.dumps(self.to_json(), sort_keys=True) + contents(self.data)
        where = f"{self.folder}of{self.folders}" if self.folders else "whole"
        preset = f"-{self.fields['preset']}" if "preset" in self.fields else ""
        return f"{self.data}.{self.editor}{preset}.{where}-{digest(said)[:10]}"

    @property
    def fit_key(self) -> str | None:
        """What is made once for all jobs that share it; None where a fit costs nothing."""
        kind = EDITORS[self.editor]
        if issubclass(kind, TPatcher):
            mine = {k: self.fields.get(k) for k in ("preset", "layer")}
        elif issubclass(kind, Trained):
            mine = self.fields
        else:
            return None
        shared = replace(self, fields=mine, folders=0, folder=0, edits=None, most=None, test=None,
                         every=None, given=0, longer=0)  # fmt: skip
        said = json.dumps(shared.to_json(), sort_keys=True) + contents(self.data)
        return f"fit.{self.data}.{self.editor}-{digest(said)[:10]}"

    def command(self, out: str | Path) -> str:
        """What to type for this job alone."""
        words = [f"tpatcher sme {self.model} --data {self.data} --editor {self.editor}"]
        if self.fields:
            words.append(f"--knobs '{json.dumps(self.fields)}'")
        for name in ("path", "without", "folders", "folder", "edits", "most", "tr", "test",
                     "memory", "every", "given", "longer", "seed"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value != getattr(Job, name, None):
                words.append(f"--{name} {value}")
        words += [f"--traffic {file}" for file in self.traffic]
        if self.folders and not self.folder:
            words.append("--folder 0")
        if self.skip_bad:
            words.append("--skip-bad")
        return " ".join([*words, f"--out {out}"])


@dataclass
class Ground:
    """What jobs on the same model and data share: f0, its data, and what it is to retain."""

    base: Model
    split: Split
    memory: list[Example]
    traffic: list[str]  # unlabelled, the rest of the memory
    kept: dict[str, Sequence[Example]]  # D_tr and D_test
    paths: dict[str, AnswerCache] = field(default_factory=dict)

    def retain(self, beside: Path, progress: bool = False) -> dict[str, AnswerCache]:
        """D_tr and D_test with f0's answers to them, which take minutes where they are many."""
        if not self.paths:
            self.paths = {k: _paths(self.base, v, beside, progress) for k, v in self.kept.items()}
        return self.paths

    def stream(self, job: Job) -> list[Example]:
        """The examples of the job's folder, in a seeded order."""
        if job.folders:
            found = self.split.folders(job.folders, job.seed)[job.folder]
        else:
            found = list(self.split.edit)
            Random(job.seed).shuffle(found)
        found = found[: job.most]
        return found if job.edits is None else until(self.base, found, job.edits)

    def lessons(self, job: Job) -> Sequence[Example]:
        """What a trained editor learns from: rephrasings come with it where there are any."""
        return grouped(job.data) if job.data.startswith("builtin-") else self.memory


@lru_cache(maxsize=2)
def _ground(
    model: str, data: str, path: Path | None, without: Path | None, traffic: tuple[Path, ...],
    sizes: tuple[int, int, int, int], seed: int, skip_bad: bool, device: str | None,
) -> Ground:  # fmt: skip
    base = load(model, device=device)
    options: dict[str, Any] = {"without": without} if without else {}
    if skip_bad:
        options["skip_bad"] = True
    split = dataset(data, path, **options)
    tr, tested, memory, longer = sizes
    d_tr, kept = split.retained(tr=tr, memory=memory, seed=seed)
    test = list(split.test)
    Random(seed).shuffle(test)
    split = replace(split, edit=[*split.edit, *test[:longer]], test=test[longer:])
    apart = {e.text for part in (kept, d_tr, split.edit, split.test) for e in part}
    apart.update(text for e in split.edit for text in e.rephrasings)
    if traffic and len(kept) == memory:
        raise BadInput(f"the {memory} memory examples leave no room for traffic: raise --memory")
    more = _texts(traffic, apart, seed, skip_bad)[: memory - len(kept)]
    return Ground(base, split, kept, more, {"train": d_tr, "test": split.test[:tested]})


def _texts(files: Sequence[Path], apart: Set[str], seed: int, skip_bad: bool) -> list[str]:
    """The texts of files, each file's in a seeded order, but those in use apart from memory."""
    found: dict[str, None] = {}
    for file in files:
        texts = read_texts(file, skip_bad=skip_bad)
        Random(seed).shuffle(texts)
        found.update((text, None) for text in texts if text not in apart)
    return list(found)


def ground(job: Job, device: str | None = None) -> Ground:
    """The job's ground, from the last job on the same one if that was here."""
    if job.editor not in EDITORS:
        raise BadInput(f"Unknown editor {job.editor!r}. Available: {', '.join(EDITORS)}")
    tested = job.tr if job.test is None else job.test
    sizes = (job.tr, tested, job.memory, job.longer)
    return _ground(
        job.model, job.data, job.path, job.without, job.traffic, sizes, job.seed, job.skip_bad,
        device,
    )  # fmt: skip


def until(model: Model, stream: Sequence[Example], mistakes: int) -> list[Example]:
    """The beginning of a stream that ends with so many mistakes of the unedited model."""
    for start in range(0, len(stream), 64):
        for i, right in enumerate(model.correct(stream[start : start + 64]), start + 1):
            mistakes -= not right
            if not mistakes:
                return list(stream[:i])
    return list(stream)


def fit(job: Job, beside: Path, device: str | None = None, progress: bool = False) -> Editor:
    """The job's editor, fitted; what is expensive is kept for other jobs and found again."""
    on = ground(job, device)
    editor = EDITORS[job.editor](**job.fields)
    if isinstance(editor, TPatcher):
        return editor.fit(on.base, _memory(on, editor, beside, progress))
    if job.traffic:
        raise BadInput(f"{job.editor} keeps no memory of queries that traffic could fill")
    if isinstance(editor, Trained):
        examples = on.lessons(job)
        said = "\n".join(f"{e.text}\t{e.answer}\t{len(e.rephrasings)}" for e in examples)
        about = json.dumps([on.base.base.fingerprint, editor.settings(), said], sort_keys=True)
        editor.checkpoint = beside / f"{job.editor}-{digest(about)[:16]}"
        editor.progress = progress
        return editor.fit(on.base, examples)
    return editor.fit(on.base, on.memory)


def run(
    job: Job,
    out: Path,
    beside: Path,
    device: str | None = None,
    tell: Callable[[sme.Step], None] = lambda step: None,
    progress: bool = False,
) -> dict[str, Any]:
    """Run what is missing of a job; its numbers, which are also kept in out/scores.json."""
    if (out / SCORES).exists():
        kept: dict[str, Any] = json.loads((out / SCORES).read_bytes())
        if kept["job"] == job.to_json():
            return kept
    began = perf_counter()
    on = ground(job, device)
    editor = fit(job, beside, device, progress)
    stream, model, steps = on.stream(job), on.base.twin(), []
    retain = on.retain(beside, progress)
    for step in sme.run(model, editor, stream, retain, job.every, out, job.given):
        steps.append(step)
        tell(step)
    header, _ = sme.read(out)
    result = {
        "job": job.to_json(),
        "f0": {
            "memory": len(on.memory) + len(on.traffic),
            **{k: _accuracy(p) for k, p in retain.items()},
        },
        "scores": sme.score(steps, header["N"]).to_json(),
        "bytes_per_edit": _bytes(model),
        "activations": activations.measure(model, _wrong(retain["test"])),
        "seconds": round(perf_counter() - began, 1),
    }
    files.replace(out / SCORES, json.dumps(result, indent=1).encode())
    return result


@cache
def contents(data: str) -> str:
    """A hash of built-in facts and model, which may change with the package."""
    if not data.startswith("builtin-"):
        return ""
    files = sorted(f for d in (FACTS, FACTS.with_name(data)) for f in d.iterdir() if f.is_file())
    return digest("".join(hashlib.sha256(f.read_bytes()).hexdigest() for f in files))


def digest(said: str) -> str:
    return hashlib.sha256(said.encode()).hexdigest()


def _memory(on: Ground, editor: TPatcher, beside: Path, progress: bool) -> Memory:
    """The memory of queries, kept beside the runs for other jobs on the same model and traffic."""
    own = editor.preset == "fast"
    lines = [f"{e.text}\t{'' if own else e.answer}" for e in on.memory]
    said = "\n".join([*lines, *(f"{text}\t" for text in on.traffic)])
    kept = beside / f"memory-{digest(f'{on.base.base.fingerprint} {editor.layer} {said}')[:16]}"
    if (kept / "memory.json").exists():
        return Memory.load(kept)
    items = [*([e.text for e in on.memory] if own else on.memory), *on.traffic]
    memory = Memory.collect(on.base, items, layer=editor.layer, progress=progress)
    memory.save(kept)
    return memory


def _paths(model: Model, examples: Sequence[Example], beside: Path, progress: bool) -> AnswerCache:
    """The examples with f0's answers, kept like the memory."""
    said = "\n".join(e.text for e in examples)
    kept = beside / f"paths-{digest(f'{model.base.fingerprint} {said}')[:16]}.safetensors"
    if kept.exists():
        try:
            seen = Trace(**load_file(kept))
        except (SafetensorError, TypeError) as error:
            raise Damaged(f"{kept} cannot be read: {error}; remove it") from error
        device = model.net.device  # as a trace has it: the rest stays on the CPU
        seen.queries, seen.states = seen.queries.to(device), seen.states.to(device)
        return AnswerCache(model, examples, seen=seen)
    paths = AnswerCache(model, examples, progress=progress)
    if paths.usable and examples:
        beside.mkdir(parents=True, exist_ok=True)
        files.replace(kept, save({k: v.contiguous() for k, v in vars(paths.seen).items()}))
    return paths


def _bytes(model: Model) -> float:
    """What an edit leaves behind, in bytes; a codebook holds all edits before it too."""
    sizes = [sum(t.nbytes for t in p.tensors.values()) for p in model.patches]
    if any(isinstance(p, Codebook) for p in model.patches):
        sizes = sizes[-1:] + [0] * (len(sizes) - 1)
    return sum(sizes) / max(1, len(sizes))


def _wrong(paths: AnswerCache, most: int = 100) -> list[Example]:
    return [e for e, right in zip(paths.examples, paths.base, strict=True) if not right][:most]


def _accuracy(paths: AnswerCache) -> dict[str, float]:
    return {
        "examples": len(paths.base),
        "right": round(sum(paths.base) / max(1, len(paths.base)), 4),
    }
