"""A pack: a directory with the patches of one model, to keep, send and load again."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from tpatcher import files
from tpatcher.errors import BadInput, Damaged, WrongBase
from tpatcher.patches import from_meta
from tpatcher.patches.base import Patch

INDEX = "patches.json"
CARD = """---
library_name: tpatcher
base_model: {base}
---
# {n} fixes for {base}

Patches made by [tpatcher](https://pypi.org/project/tpatcher/) {version}: neurons in a
feed-forward layer of the model, one per mistake. The model itself is unchanged.

```python
import tpatcher as tp
model = tp.load("{base}", patches="this directory")
```

{table}
"""


@dataclass(frozen=True)
class Base:
    """Which model patches were made for."""

    name: str
    fingerprint: str


def write(directory: str | Path, patches: Sequence[Patch], base: Base, text: bool = True) -> None:
    """Save the patches; without `text`, the reported examples are left out.

    The index is replaced last and at once: a reader sees the old pack or the new one.
    """
    from tpatcher import __version__

    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    kept = [p if text else p.without_text() for p in patches]
    tensors = {f"{p.id}.{k}": t for p in kept for k, t in p.tensors.items()}
    blob = save_tensors(tensors)
    checksum = hashlib.sha256(blob).hexdigest()
    file = f"patches-{checksum[:12]}.safetensors"
    files.write_atomic(path / file, blob)
    index = {
        "tpatcher": __version__,
        "base": {"name": base.name, "fingerprint": base.fingerprint},
        "tensors": {"file": file, "sha256": checksum},
        "patches": [p.meta for p in kept],
    }
    files.write_atomic(path / INDEX, json.dumps(index, indent=1, ensure_ascii=False).encode())
    lines = [f"| {p.id} | {p.editor} | {_cell(p)} |" for p in kept]
    table = "\n".join(["| patch | editor | fixes |", "|---|---|---|", *lines])
    card = CARD.format(base=base.name, n=len(kept), version=__version__, table=table)
    files.write_atomic(path / "README.md", card.encode())
    for stale in path.glob("patches-*.safetensors"):
        if stale.name != file:
            stale.unlink()


def read(directory: str | Path, base: Base | None = None) -> list[Patch]:
    """The patches of a pack, in order; refused if they were made for another base model."""
    path = Path(directory)
    if not (path / INDEX).is_file():
        raise BadInput(f"{path} is not a pack of patches: it has no {INDEX}")
    try:
        index = json.loads((path / INDEX).read_bytes())
        made_for = Base(**index["base"])
        file, checksum = index["tensors"]["file"], index["tensors"]["sha256"]
        metas = index["patches"]
        ids = [str(meta["id"]) for meta in metas]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path / INDEX} cannot be read: {error!r}") from error
    if base is not None and made_for.fingerprint != base.fingerprint:
        raise WrongBase(
            f"{path} was made for {made_for.name!r} ({made_for.fingerprint}), but this model is "
            f"{base.name!r} ({base.fingerprint})"
        )
    if Path(file).name != file or not (path / file).is_file():
        raise Damaged(f"{path / INDEX} names the tensors {file!r}, which are not there")
    blob = (path / file).read_bytes()
    if hashlib.sha256(blob).hexdigest() != checksum:
        raise Damaged(f"{path / file} is not what was saved: its checksum differs")
    try:
        tensors = load_tensors(blob)
    except SafetensorError as error:
        raise Damaged(f"{path / file} cannot be read: {error}") from error
    out = []
    for one, meta in zip(ids, metas, strict=True):
        mine = {k.removeprefix(f"{one}."): t for k, t in tensors.items() if k.startswith(f"{one}.")}
        out.append(from_meta(meta, mine))
    return out


def _cell(patch: Patch) -> str:
    if patch.example is None:
        return "(text left out)"
    line = f"{patch.example.text} → {patch.example.answer}"
    return " ".join(line.replace("|", "\\|").split())
