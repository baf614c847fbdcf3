"""How strongly each of the newest fixes responds to each of the latest questions."""

from typing import Any

from tpatcher.patches.neurons import Neurons
from tpatcher.service.live import Moment


def heat(now: Moment, fixes: int = 24, questions: int = 24) -> dict[str, Any]:
    """The fixes, the questions, and the largest pre-activation of each pair."""
    worn = [
        (i, p) for i, p in zip(now.ids, now.model.patches, strict=True)
        if isinstance(p, Neurons) and p.layer == -1
    ][-fixes:]  # fmt: skip
    latest = {
        a.text: a for a in now.ground.guard.traffic.latest()
    }  # a question asked again counts once
    asked = list(latest.values())[-questions:]
    responses = [
        [round(float((a.queries @ p.keys.T + p.bias).max()), 2) for a in asked] for _, p in worn
    ]
    return {
        "fixes": [{"id": i, "text": p.example.text if p.example else ""} for i, p in worn],
        "questions": [{"text": a.text, "answer": a.answer} for a in asked],
        "responses": responses,
    }
