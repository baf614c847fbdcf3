"""The numbers that the paper printed: its tables, and those in the text."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def numbers() -> dict[str, Any]:
    """All of them, as the data file holds them."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_bytes())
    return found


def cells(table: str, task: str, row: str) -> dict[str, float]:
    """One row of a table on "fc" or "qa" by its columns; empty where the paper has none."""
    about = numbers().get(table, {})
    found = about.get(task, {}).get(row)
    return dict(zip(about["columns"], found, strict=True)) if found else {}


def deviations(table: str, task: str, row: str) -> dict[str, float]:
    """What stands behind the ± of a row."""
    about = numbers().get(table, {})
    found = about.get("deviations", {}).get(task, {}).get(row)
    return dict(zip(about["columns"], found, strict=True)) if found else {}
