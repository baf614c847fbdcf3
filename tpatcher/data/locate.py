"""Finding a dataset's files in a folder by patterns of the names they were published under."""

from pathlib import Path

from tpatcher.data.formats import FORMATS
from tpatcher.data.reader import kind
from tpatcher.errors import BadInput


def locate(folder: Path | str, *layouts: tuple[str, ...]) -> list[Path]:
    """The files of the first layout of which every pattern matches a file, plain or gzipped.

    Each file may lie in the folder or in one of the folders in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: not a folder; give the one that holds the dataset's files")
    roots = [folder, *sorted(p for p in folder.iterdir() if p.is_dir())]
    present: dict[Path, None] = {}
    for layout in layouts:
        found = [path for pattern in layout if (path := _find(roots, pattern))]
        if len(found) == len(layout):
            return found
        present |= dict.fromkeys(found)
    wanted = "; or ".join(", ".join(layout) for layout in layouts)
    there = ", ".join(path.name for path in present) or "none of them"
    raise BadInput(f"{folder}: needs {wanted} (plain or .gz); found {there}")


def _find(roots: list[Path], pattern: str) -> Path | None:
    """The file that matches the pattern in the first folder that has one."""
    for root in roots:
        paths = {*root.glob(pattern), *root.glob(f"{pattern}.gz")}
        files = sorted(path for path in paths if path.is_file() and kind(path) in FORMATS)
        # a file that is there plain and gzipped counts once: the plain one sorts first
        found = {path.name.removesuffix(".gz"): path for path in reversed(files)}
        if len(found) > 1:
            raise BadInput(f"{root}: needs one file {pattern}; found {', '.join(sorted(found))}")
        if found:
            return next(iter(found.values()))
    return None
