"""Do I know how bytes lie on the disk? Files and directories that a kill never leaves half."""

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tpatcher.errors import BadInput

try:
    import fcntl
except ImportError:  # Windows has no such locks: what a kill leaves half made stays there
    fcntl = None  # type: ignore[assignment]


def write_atomic(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file so that after a kill it holds the old content or the new one, never half."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def new_directory(directory: str | Path) -> Iterator[Path]:
    """Give a directory to fill; it appears at this path when the block ends, or not at all.

    What a kill left half made at an earlier time is taken away first.
    """
    path = Path(directory)
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise BadInput(f"{path} is not empty; give a new directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}.half-made."
    for left in path.parent.glob(f"{glob.escape(prefix)}*") if fcntl else ():
        with suppress(OSError), _held(left):  # its maker lives no more
            shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=prefix) as folder, _held(Path(folder)):
        made = Path(folder) / path.name
        made.mkdir()
        yield made
        for file in (one for one in made.rglob("*") if one.is_file()):
            with file.open("rb") as written:
                os.fsync(written.fileno())
        os.replace(made, path)  # an empty directory may be in its place


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a lock on a directory that ends with this process; OSError if another one has it."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def safetensors_metadata(blob: bytes) -> Any:
    """What was saved as JSON under "tpatcher" in the header of a safetensors file.

    Raises ValueError, KeyError or TypeError if the header has no such thing.
    """
    size = int.from_bytes(blob[:8], "little")  # the header's length, then the header
    return json.loads(json.loads(blob[8 : 8 + size])["__metadata__"]["tpatcher"])
