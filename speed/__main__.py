"""All figures of docs/speed.md: python -m speed [--json FILE] [--only NAME …]."""

import argparse
import json
import resource
from pathlib import Path

from rich.console import Console
from rich.table import Table

from speed.figures import (
    Figure,
    answering,
    editing,
    editing_by_text,
    editing_chat,
    large,
    retention,
    starting,
)

ALL = {
    "classification": lambda: editing("classification"),
    "qa": lambda: editing("QA with 3 wrong tokens"),
    "contrast": lambda: (
        editing_by_text("classification") + editing_by_text("QA with 3 wrong tokens")
    ),
    "chat": lambda: editing_chat("fast") + editing_chat("text"),
    "answer": lambda: answering(1_000, 1.05) + answering(10_000, 1.5),
    "retention": retention,
    "large": large,
    "start": starting,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed, as ratios measured side by side.")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    args = parser.parse_args()
    console, found = Console(), list[Figure]()
    for name in args.only:
        with console.status(name):
            found += ALL[name]()
    table = Table("figure", "value", "bar", "met", "measured")
    for one in found:
        table.add_row(
            one.figure, f"{one.value:.4g}", f"{one.bar:.4g}", "yes" if one.met else "no", one.about
        )
    console.print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    console.print(f"peak memory of this process: {peak:.2f} GB")
    if args.json:
        args.json.write_text(json.dumps([one.to_json() for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
