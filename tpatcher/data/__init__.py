"""Do I know a file format? Datasets by name, in the parts that Sequential Model Editing needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpatcher.data import hub
from tpatcher.data.builtin import builtin_fc, builtin_qa
from tpatcher.data.counterfact import counterfact
from tpatcher.data.custom import own, read_examples, read_texts
from tpatcher.data.edit_sets import hallueditbench, qaedit, wikibigedit
from tpatcher.data.fever import fever
from tpatcher.data.reader import SkippedLines
from tpatcher.data.split import Split
from tpatcher.data.zsre import zsre
from tpatcher.errors import BadInput, NotFitted, unknown
from tpatcher.example import Example

__all__ = [
    "DATASETS",
    "SkippedLines",
    "Split",
    "answered_traffic",
    "dataset",
    "read_examples",
    "read_texts",
    "traffic",
]

DATASETS: dict[str, Callable[..., Split]] = {
    "fever": fever,
    "zsre": zsre,
    "counterfact": counterfact,
    "wikibigedit": wikibigedit,
    "qaedit": qaedit,
    "hallueditbench": hallueditbench,
    "own": own,
    "builtin-fc": builtin_fc,
    "builtin-qa": builtin_qa,
}


def dataset(name: str, data: Path | str | None = None, **options: Any) -> Split:
    """A dataset by its name, from the folder or file `data`; options are those of its loader.

    Without `data`, FEVER, zsRE and CounterFact are fetched from the Hugging Face hub.
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    built_in = name.startswith("builtin-")
    if built_in and data is not None:
        raise BadInput(f"the dataset {name!r} is built in and reads no files; found {str(data)!r}")
    if data is None and name in hub.SOURCES:
        data = hub.fetched(name)
    if not built_in and data is None:
        raise BadInput(f"the dataset {name!r} needs the folder or file that holds it")
    return DATASETS[name](**options) if data is None else DATASETS[name](data, **options)


def traffic(name: str, path: Path | str | None = None, limit: int = 8_000) -> list[str]:
    """Ordinary texts for a model: those of a file, or some that a built-in model was trained on."""
    if path is not None:
        return read_texts(path)
    if not (name.startswith("builtin-") and name in DATASETS):
        raise NotFitted(
            f"no traffic is known for {name!r}, and what is not known cannot be left alone: give a "
            "file with a few thousand texts like those the model is used on, .txt, .jsonl or .csv"
        )
    return [example.text for example in _trained_on(name, limit)]


def answered_traffic(
    name: str, path: Path | str | None = None, limit: int = 8_000
) -> list[Example] | list[str]:
    """The same with the right answers, as examples, where every line of the file has one."""
    if path is None and name.startswith("builtin-"):
        return _trained_on(name, limit)
    if path is not None:
        try:
            return read_examples(path)
        except BadInput:
            pass  # a file of texts alone; a bad one is refused below
    return traffic(name, path, limit)


def _trained_on(name: str, limit: int) -> list[Example]:
    """Some of what a built-in model was trained on."""
    known = dataset(name).train
    return list(known[:: max(1, len(known) // limit)])
