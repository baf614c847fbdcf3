"""A benchmark that runs in seconds: models of the zoo on a dataset of their own words."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.helpers import TEXTS, saved, stream_of
from tpatcher.bench.experiments import TABLES, rows_named
from tpatcher.bench.scale import SMALL, Scale
from tpatcher.bench.setup import Setup, setups
from tpatcher.bench.table import FOLDERS, Planned, jobs
from tpatcher.models.loading import load

SCALE: Scale = replace(
    SMALL,
    name="tiny",
    edits={"fc": 2, "qa": 2},
    whole_stream={"fc": 3, "qa": 3},
    n_train=8,
    n_test=8,
    memory_size=24,
    memory_sizes=(12, 24),
    kl_batch=4,
    learning_rate=1e-3,
)


def setup(directory: Path, name: str) -> Setup:
    """A model of the zoo on disk, and data beside it: mostly what it says anyway."""
    (directory / name).mkdir(parents=True)
    model = saved(directory / name, name)
    loaded = load(model)
    said = zip(TEXTS, loaded.answer(TEXTS), strict=True)
    rows = [{"text": text, "answer": " ".join(answer.split()[:2]) or "no"} for text, answer in said]
    data = directory / f"{name}-data"
    data.mkdir()
    parts: dict[str, list[dict[str, Any]]] = {
        "train": rows[:40],
        "test": rows[40:],
        "edit": [e.to_json() for e in stream_of(loaded)],
    }
    for part, lines in parts.items():
        (data / f"{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return setups([str(data)], [str(model)], [])[0]


def plan(on: Setup, *rows: str, scale: Scale = SCALE) -> list[Planned]:
    """Table 1 with some of its rows."""
    made = {row: jobs(row, on, scale, FOLDERS) for row in rows_named(rows)}
    return [Planned(TABLES["table1"], on, made)]


def quick(editor: str) -> dict[str, Any]:
    """Fields of a trained editor that learns nothing, soon."""
    more: dict[str, Any] = {"mend": {"rank": 4}, "ke": {"hidden": 4, "condition": 8}}
    return {"steps": 2, "edits": 2, "local": 1} | more[editor] if editor in more else {
        "steps": 2, "encoder": "", "batch": 4,
    }  # fmt: skip
