"""A dataset's files in a folder, found by the names they were published under."""

from pathlib import Path

from tpatcher.errors import BadInput


def locate(folder: Path | str, *layouts: tuple[str, ...]) -> list[Path]:
    """The files of the first layout that is complete, each plain or gzipped.

    They may lie in the folder, in any folder in it or, for names with a folder, beside it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: not a folder; give the one that holds the dataset's files")
    roots = [folder, *sorted(p for p in folder.iterdir() if p.is_dir()), folder.resolve().parent]
    present: list[Path] = []
    for layout in layouts:
        found = [path for name in layout if (path := find(roots, name))]
        if len(found) == len(layout):
            return found
        present += found
    wanted = "; or ".join(", ".join(layout) for layout in layouts)
    there = ", ".join(path.name for path in present) or "none of them"
    raise BadInput(f"{folder}: needs {wanted} (plain or .gz); found {there}")


def find(roots: list[Path], name: str) -> Path | None:
    """The first of these files that exists."""
    # The parent is searched only for names such as "entityquestions/dev.jsonl": anything else
    # there belongs to somebody else.
    searched = roots if "/" in name else roots[:-1]
    paths = (root / f"{name}{zipped}" for root in searched for zipped in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)
