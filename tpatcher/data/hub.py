"""Published datasets from the Hugging Face hub (extra `[data]`), as the files their loaders read.

FEVER and zsRE come from KILT. Its claims have no rephrasings, so GR on FEVER needs De Cao's files;
its zsRE asks each question in the words of several templates.
"""

import json
import os
from pathlib import Path
from typing import Any

from tpatcher import files
from tpatcher.errors import BadInput

# name → the hub's name of it, its configuration, and which split becomes which file
SOURCES: dict[str, tuple[str, str | None, dict[str, str]]] = {
    "fever": (
        "facebook/kilt_tasks",
        "fever",
        {"train": "fever-train-kilt.jsonl", "validation": "fever-dev-kilt.jsonl"},
    ),
    "zsre": (
        "facebook/kilt_tasks",
        "structured_zeroshot",
        {
            "train": "structured_zeroshot-train-kilt.jsonl",
            "validation": "structured_zeroshot-dev-kilt.jsonl",
        },
    ),
    "counterfact": ("azhx/counterfact", None, {"train+test": "counterfact.json"}),
}


def fetched(name: str) -> Path:
    """The folder with a dataset's files; fetched once, then kept in ~/.cache/tpatcher/data."""
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "tpatcher" / "data" / name
    if folder.exists():
        return folder
    needed = f"the dataset {name!r} needs the folder or file that holds it"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise BadInput(
            f"{needed}; `pip install 'tpatcher[data]'` fetches it from the hub"
        ) from error
    source, configuration, splits = SOURCES[name]
    with files.new_directory(folder) as made:
        for split, file in splits.items():
            try:
                rows = load_dataset(source, configuration, split=split)
            except (OSError, ValueError) as error:
                raise BadInput(
                    f"{needed}; {source} could not be fetched from the hub: {error}"
                ) from error
            lines = [json.dumps(asked(without_gaps(row)), ensure_ascii=False) for row in rows]
            (made / file).write_text("\n".join(lines) + "\n")
    return folder


def asked(row: Any) -> Any:
    """A row of KILT's zsRE, "subject [SEP] relation", as a question and its rephrasings."""
    questions = row.get("meta", {}).get("template_questions")
    return row | {"input": questions[0], "rephrases": questions[1:]} if questions else row


def without_gaps(value: Any) -> Any:
    """A row without its empty fields: a table on the hub fills in what its rows do not have."""
    if isinstance(value, dict):
        inner = {key: without_gaps(one) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one not in ("", None, [], {})}
    return [without_gaps(one) for one in value] if isinstance(value, list) else value
