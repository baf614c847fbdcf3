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


def cells(table: str, task: str, row: str, *, deviations: bool = False) -> dict[str, float]:
    """A row of a table on "fc" or "qa" by its columns, or what stands behind its ±; or empty.

    A column that the paper gives no number for is left out.
    """
    about = numbers().get(table, {})
    by_task = about.get("deviations", {}) if deviations else about
    found = by_task.get(task, {}).get(row)
    pairs = zip(about["columns"], found, strict=True) if found else ()
    return {column: number for column, number in pairs if number is not None}
