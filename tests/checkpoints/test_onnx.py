"""Baked models as ONNX give the same logits in another runtime."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints.fixed_models import patched
from tests.service import served
from tpatcher.checkpoints import onnx as graph
from tpatcher.checkpoints.bake import bake
from tpatcher.errors import BadInput, NotExported
from tpatcher.models.model import Model

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("bart", "gpt2")]


@pytest.mark.parametrize("name", ["bert", *SLOW])
def test_as_onnx_it_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = patched(name)
    texts = list(served.texts()[:10])
    assert bake(model, tmp_path / "out", texts, onnx=True) < 1e-4
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    asked = [p.example.text for p in model.patches if p.example] + texts[:3]
    forced = model.task.force(asked, model.task.predict(model.net, asked))
    (found,) = session.run(["logits"], {k: v.numpy() for k, v in forced.inputs.items()})
    with torch.no_grad():
        wanted = model.net(**forced.inputs).logits
    assert torch.allclose(torch.from_numpy(found), wanted, atol=1e-4)
    if name == "bert":  # with labels alone the answer is the largest logit
        labels = [model.task.labels[i] for i in found.argmax(-1)]  # type: ignore[attr-defined]
        assert labels == model.answer(asked)


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpatcher.checkpoints.onnx.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install \"tpatcher\[onnx\]\""):
        bake(patched("bert"), tmp_path / "out", onnx=True)
    assert not list(tmp_path.iterdir())


def test_onnx_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(model: Model, directory: Path, texts: list[str]) -> float:
        session: Any = type("Session", (), {"run": lambda *_: [torch.zeros(8, 3).numpy()]})()
        return graph.compare(model, session, texts[:1] * 8)

    monkeypatch.setattr(graph, "export", worse)
    with pytest.raises(NotExported, match="logits of the ONNX model differ"):
        bake(patched("bert"), tmp_path / "out", onnx=True)
    assert not list(tmp_path.iterdir())
