"""Writing files and directories so that a kill never leaves half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpatcher.errors import BadInput


def replace(path: Path, content: bytes) -> None:
    """Write a file at once: after a kill it holds the old content or the new one, never half."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def fresh(directory: str | Path) -> Iterator[Path]:
    """A new directory to fill: it appears as a whole when all went well, or not at all."""
    path = Path(directory)
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise BadInput(f"{path} is not empty; give a new directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        made.mkdir()
        yield made
        for file in (one for one in made.rglob("*") if one.is_file()):
            with file.open("rb") as written:
                os.fsync(written.fileno())
        os.replace(made, path)  # an empty directory may be in its place
