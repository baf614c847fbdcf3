"""The model card of a pack: which model, how many fixes, what was checked, how to load them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tpatcher.patches.base import Patch

if TYPE_CHECKING:
    from tpatcher.patches.pack import Base

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # user/name
CARD = """---
library_name: tpatcher
tags: [model-editing, transformer-patcher]{base_model}
---
# {n} fixes for {base}

Patches made by [tpatcher](https://pypi.org/project/tpatcher/) {version}: each belongs to one
reported mistake and can be taken off by itself, bit for bit. The model itself is unchanged and not
in here; it is known by the fingerprint `{fingerprint}`, and another model refuses these patches.

```python
import tpatcher as tp

model = tp.load({loaded}, patches={where})
```

## What was checked when they were made
{checked}

## The fixes
{fixes}
"""


def card(patches: Sequence[Patch], base: "Base", where: str = "this directory") -> str:
    """The README of a pack that lies at `where`, a name on the hub or a directory."""
    from tpatcher import __version__

    on_hub = HUB_NAME.fullmatch(base.name) and not Path(base.name).exists()
    return CARD.format(
        base_model=f"\nbase_model: {json.dumps(base.name)}" if on_hub else "",
        n=len(patches),
        base=plain(base.name),
        version=__version__,
        fingerprint=base.fingerprint,
        loaded=json.dumps(base.name, ensure_ascii=False),
        where=json.dumps(where, ensure_ascii=False),
        checked=_table(("", ""), _checked(patches)),
        fixes=_table(("patch", "editor", "fixes"), [(p.id, p.editor, _fix(p)) for p in patches]),
    )


def plain(text: str) -> str:
    """A text on one line in which nothing is Markdown or HTML, whoever wrote it."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _checked(patches: Sequence[Patch]) -> list[tuple[str, str]]:
    """The metrics of a pack, summed up from its certificates; what was not checked is left out."""
    found = [patch.certificate for patch in patches]
    memory = [c.memory_changed for c in found if c.memory_changed is not None]
    past = [c.past_fixes_changed for c in found if c.past_fixes_changed is not None]
    seconds = [c.seconds for c in found if c.seconds is not None]
    rows = [
        ("fixes", str(len(found))),
        ("neurons", str(sum(len(p.tensors.get("keys", ())) for p in patches))),
        ("not fixed", str(sum(c.fixed is False for c in found))),
    ]
    if memory:
        rows.append(("answers of the memory that change", f"{sum(memory)}, in {len(memory)} fixes"))
    if past:
        rows.append(("earlier fixes that a fix breaks", f"{sum(past)}, in {len(past)} fixes"))
    if seconds:
        rows.append(("seconds a fix, median", f"{median(seconds):.2g}"))
    return rows


def _fix(patch: Patch) -> str:
    if patch.example is None:
        return "(text left out)"
    return f"{plain(patch.example.text)} → {plain(patch.example.answer)}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
