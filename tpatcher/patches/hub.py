"""Packs on the Hugging Face hub: pushed as a repository with a model card, fetched by its name.

A commit replaces the pack as a whole, so whoever loads it sees the old fixes or the new ones.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tpatcher.errors import BadInput
from tpatcher.patches import pack
from tpatcher.patches.base import Patch
from tpatcher.patches.card import HUB_NAME, card

TENSORS = "patches-*.safetensors"


def found(where: str | Path) -> Path:
    """The directory of a pack, fetched from the hub if `where` is no directory but a name there.

    `user/name@revision` is the pack as it was at a commit, tag or branch.
    """
    name, _, revision = str(where).partition("@")
    if Path(where).exists() or not HUB_NAME.fullmatch(name):
        return Path(where)
    from huggingface_hub import snapshot_download

    with _explained(f"cannot fetch the patches {str(where)!r} from the hub"):
        wanted = [pack.INDEX, TENSORS]
        fetched = Path(snapshot_download(name, revision=revision or None, allow_patterns=wanted))
    if not (fetched / pack.INDEX).exists():
        raise BadInput(
            f"{str(where)!r} on the hub is not a pack of patches: it has no {pack.INDEX}"
        )
    return fetched


def push(
    patches: Sequence[Patch],
    base: pack.Base,
    name: str,
    *,
    text: bool = True,
    private: bool = True,
    message: str = "",
) -> str:
    """Put patches on the hub as `user/name`, in one commit; returns the address of that commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    if not HUB_NAME.fullmatch(name):
        raise BadInput(f"a name on the hub is user/name; found {name!r}")
    with tempfile.TemporaryDirectory() as folder:
        pack.write(folder, patches, base, text=text)
        kept = [p if text else p.without_text() for p in patches]
        (Path(folder) / "README.md").write_text(card(kept, base, name))
        files = {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.name != ".lock"}
    with _explained(f"cannot push the patches to {name!r} on the hub"):
        hub = HfApi(library_name="tpatcher")
        hub.create_repo(name, private=private, exist_ok=True)
        stale = [old for old in hub.list_repo_files(name) if _is_tensors(old) and old not in files]
        done = hub.create_commit(
            name,
            operations=[
                *(CommitOperationAdd(path, content) for path, content in sorted(files.items())),
                *(CommitOperationDelete(path) for path in stale),
            ],
            commit_message=message or f"{len(patches)} fixes",
        )
    return str(done.commit_url)


def _is_tensors(path: str) -> bool:
    return re.fullmatch(r"patches-[0-9a-f]+\.safetensors", path) is not None


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Say in one line what the hub refused, and what to do."""
    # of whichever library the hub's client uses
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except (HTTPError, OSError, ValueError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise BadInput(
            f"{what}: {first.rstrip('. ')}. Give a directory, or look whether the name is right, "
            "the hub is reached, and `hf auth login` was done"
        ) from error
