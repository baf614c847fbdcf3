"""One job of the benchmark: an editor on one stream of mistakes, or on one folder of many."""

import hashlib
import json
import shlex
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tpatcher.data.builtin import FACTS
from tpatcher.editors import Editor, make

SCORES = "scores.json"


# What results on disk call a field, and so does the command line but for two options.
NAMES = {
    "exclude": "without",
    "limit": "most",
    "n_train": "tr",
    "n_test": "test",
    "memory_size": "memory",
    "measure_every": "every",
    "shown_rephrasings": "given",
    "extra_from_test": "longer",
}
OPTIONS = {**NAMES, "fields": "knobs", "memory_size": "memory-size", "skip_bad": "skip-bad"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides a result, but for the version of the editor."""

    model: str
    data: str
    editor: str = "t-patcher"
    fields: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    exclude: Path | None = None  # texts to keep out of D_test
    traffic: tuple[Path, ...] = ()  # files of unlabelled texts that join the memory
    folders: int = 0  # 0: the whole edit set as one stream
    folder: int = 0
    edits: int | None = None  # the stream ends with so many mistakes of f0
    limit: int | None = None  # or after so many examples
    n_train: int = 10_000
    n_test: int | None = None  # as many as D_tr if not given
    memory_size: int = 40_000
    measure_every: int | None = None
    shown_rephrasings: int = 0
    extra_from_test: int = 0  # examples of D_test that go into the edit set
    seed: int = 0
    skip_bad: bool = False
    remember: bool = False  # what the stream has right joins the memory
    encoder: str = ""  # by which keys that read the text read it
    demo: bool = False  # as the demo draws its data: a stream of mistakes only

    def to_json(self) -> dict[str, Any]:
        """A plain dict, with the names that results on disk have."""
        found = {NAMES.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}
        for name in (
            "demo",
            "encoder",
            "remember",
        ):  # results that were written before know no such name
            if not found[name]:
                del found[name]
        return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]

    def new_editor(self) -> Editor:
        """The job's editor, not fitted."""
        return make(self.editor, **self.fields)

    @property
    def key(self) -> str:
        """A name for people, and a hash of everything that decides the result."""
        where = f"{self.folder}of{self.folders}" if self.folders else "whole"
        solver = f"-{self.fields['solver']['name']}" if "solver" in self.fields else ""
        return f"{self.data}.{self.editor}{solver}.{where}-{self._hash(self.new_editor())}"

    @property
    def context(self) -> "Job":
        """This job without what differs between jobs on the same model and data."""
        return replace(
            self,
            editor="t-patcher",
            fields={},
            folders=0,
            folder=0,
            edits=None,
            limit=None,
            measure_every=None,
            shown_rephrasings=0,
            remember=False,
        )

    @property
    def fit_key(self) -> str | None:
        """The name of what is fitted once for all jobs that share it; None if a fit is cheap."""
        editor = self.new_editor()
        fitted = editor.fit_key()
        if fitted is None:
            return None
        shared = replace(
            self.context, editor=self.editor, fields=fitted, n_test=None, extra_from_test=0
        )
        return f"fit.{self.data}.{self.editor}-{shared._hash(editor)}"

    def command(self, out: str | Path) -> str:
        """What to type for this job alone."""
        if self.demo:
            return f"tpatcher demo --edits {self.edits}"
        usual = Job(
            model=self.model, data="", editor="", folder=-1 if self.folders else self.folder
        )
        words = ["tpatcher", "sme", self.model]
        for f in fields(self):
            value = getattr(self, f.name)
            if value != getattr(usual, f.name):
                words += _option(OPTIONS.get(f.name, f.name), value)
        return shlex.join([*words, "--out", str(out)])

    def _hash(self, editor: Editor) -> str:
        """What decides the result, and the versions of the editor that makes it."""
        said = json.dumps(self.to_json(), sort_keys=True) + _builtin_contents(self.data)
        versions = editor.versions()
        if max(versions) > 1:  # the first ones were not written down
            said += json.dumps(versions)
        return digest(said)[:10]


@dataclass(frozen=True)
class Work:
    """A job, or the fit that several jobs wait for."""

    key: str
    job: Job
    only_fit: bool = False
    needs: str | None = None

    def done(self, out: Path) -> bool:
        return (self.folder(out) / ("fitted" if self.only_fit else SCORES)).exists()

    def folder(self, out: Path) -> Path:
        return out / ("fits" if self.only_fit else "jobs") / self.key


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _option(name: str, value: Any) -> list[str]:
    """The words that set an option: none of its own for a switch, one for each of several."""
    option = f"--{name}"
    if value is True:
        return [option]
    if isinstance(value, tuple):
        return [word for one in value for word in (option, str(one))]
    return [option, json.dumps(value) if isinstance(value, dict) else str(value)]


@cache
def _builtin_contents(data: str) -> str:
    """A hash of built-in facts and model, which may change with the package."""
    if not data.startswith("builtin-"):
        return ""
    found = sorted(f for d in (FACTS, FACTS.with_name(data)) for f in d.iterdir() if f.is_file())
    return digest("".join(hashlib.sha256(f.read_bytes()).hexdigest() for f in found))
