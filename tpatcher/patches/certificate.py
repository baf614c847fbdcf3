"""The certificate of a patch: what was checked when it was made, and what came out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tpatcher.errors import Damaged

# Version 0.1.0 wrote sentences; what it had twice, or under another name, is left out.
FORMER = {
    "right": "fixed",
    "memory answers changed": "memory_changed",
    "past fixes changed": "past_fixes_changed",
    "memory above beta": "memory_above_beta",
    "largest response of memory": "memory_response",
    "largest response of past fixes": "past_fixes_response",
}


@dataclass(frozen=True)
class Certificate:
    """What an editor knows about its patch. None means that it was not checked.

    Its JSON form has the fields below by their names, without those that are None or empty.
    """

    fixed: bool | None = None  # the example is answered rightly with the patch
    memory_changed: int | None = None  # memory answers that change, by the model's own head
    past_fixes_changed: int | None = None  # earlier fixes that the patch breaks
    memory_above_beta: int | None = None  # memory queries that respond above the paper's β
    memory_response: float | None = None  # the largest response of memory that could be hurt
    past_fixes_response: float | None = None  # the same of earlier fixes
    # memory queries that were checked, by what they are of: answers, prompts, documents …
    memory: Mapping[str, int] = field(default_factory=dict)
    # texts much like the example that ask something else, by kind: they answer as before
    contrast: Mapping[str, int] = field(default_factory=dict)
    response: tuple[float, ...] = ()  # of each new neuron to its own mistake: above 0 it fires
    # least probability of the target when the neurons are this active
    confidence: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None  # of training
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict that leaves out what was not checked."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        known |= {"response": list(self.response), "confidence": dict(self.confidence)}
        known |= {"contrast": dict(self.contrast), "memory": dict(self.memory)}
        return {name: value for name, value in known.items() if value not in (None, [], {})}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Certificate":
        """Read what `to_json` wrote, or what version 0.1.0 wrote in its place."""
        if not isinstance(row, Mapping):
            raise Damaged(f"a certificate must be a JSON object; found {row!r}")
        known = {f.name for f in fields(cls)}
        named = {FORMER.get(name, name): value for name, value in row.items()}
        if "margins" in named:
            named["confidence"] = named["margins"]
        kept = {name: value for name, value in named.items() if name in known}
        if "response" in kept:
            kept["response"] = tuple(kept["response"])
        return cls(**kept)
