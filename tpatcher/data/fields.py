"""Fields of published datasets, which hold the same things under different names."""

from collections.abc import Iterable
from typing import Any

from tpatcher.data.formats import Row
from tpatcher.errors import BadInput
from tpatcher.example import listed, normal


def text(row: Row, *names: str) -> str:
    """The text in the first of these fields that the row has."""
    for name in names:
        if name in row:
            if not isinstance(row[name], str) or not row[name].strip():
                raise BadInput(f"{name!r} must be a text; found {row[name]!r:.60}")
            return str(row[name])
    wanted = " or ".join(repr(name) for name in names)
    raise BadInput(f"a row needs {wanted}; this one has {', '.join(row) or 'nothing'}")


def texts(row: Row, *names: str) -> list[str]:
    """The texts in the first of these fields that the row has: a list of them, one, or none."""
    return next((listed(row, name, str) for name in names if row.get(name) is not None), [])


def flat(found: Any) -> list[str]:
    """The texts in a field that some releases nest in lists of lists."""
    if isinstance(found, list):
        return [one for part in found for one in flat(part)]
    return [found] if isinstance(found, str) and found.strip() else []


def inner(row: Row, name: str) -> Row:
    """The object in a field."""
    found = row.get(name)
    if not isinstance(found, dict):
        raise BadInput(f"{name!r} must be an object; found {found!r:.60}")
    return found


def answers(row: Row) -> list[str]:
    """The distinct answers of a row, either in `answers` or in KILT's `output`.

    KILT also lists answers without evidence; as in the paper's data they count only if none has.
    """
    outputs = [o for o in listed(row, "output", dict) if o.get("answer") is not None]
    cited = [o for o in outputs if "provenance" in o] or outputs
    found = [text(o, "answer") for o in cited] or texts(row, "answers")
    if not found:
        raise BadInput(f"a row needs an answer; this one has {', '.join(row)}")
    distinct: dict[str, str] = {}
    for answer in found:
        distinct.setdefault(normal(answer), answer)
    return list(distinct.values())


def others(asked: str, phrasings: Iterable[str]) -> tuple[str, ...]:
    """Distinct phrasings other than the text itself, which De Cao's lists often contain."""
    return tuple(dict.fromkeys(p for p in phrasings if p != asked))
