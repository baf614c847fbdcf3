"""Where jobs run: which worker has which GPU, told to whoever begins it. No GPU is needed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from tests.bench import tiny
from tests.bench.watching import Noted
from tests.helpers import tpatcher
from tpatcher.bench import executors, paper_setups, placement, runner
from tpatcher.bench.executors import Actor, Inline, Worker, executor_for
from tpatcher.bench.job import Work
from tpatcher.bench.runner import works
from tpatcher.errors import BadInput


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "gpus", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_gpus_go_round() -> None:
    assert placement.devices("cuda", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert placement.devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert placement.devices(None, 2) == [None, None]


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="sees no GPU"):
        executor_for("here", None, tmp_path, "cuda")
    with pytest.raises(BadInput, match="cluster has no GPU"):
        executors._slots({"CPU": 8.0}, "cuda")
    assert executors._slots({"CPU": 8.0, "GPU": 2.0}, "cuda") == 2
    assert executors._slots({"CPU": 8.0, "GPU": 2.0}, None) == 8


@pytest.mark.usefixtures("two_gpus")
def test_each_process_has_its_gpu_and_keeps_it_when_it_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str | None] = []

    class Pretended:
        def __init__(self, out: Path, threads: int, device: str | None) -> None:
            begun.append(device)
            self.dies = len(begun) == 1

        def attempt(self, work: Work) -> dict[str, bytes]:
            if self.dies:
                raise executors.WorkerDied("gone")
            return {"scores.json": b"{}"}

        def kill(self) -> None: ...

    monkeypatch.setattr(executors, "Process", Pretended)
    on = tiny.setup(tmp_path, "bert")
    todo = works(tiny.plan(on, "ft-all"))[:1]
    assert runner.run(todo, executor_for("here", 2, tmp_path, "cuda"), tmp_path, Noted()) == {}
    assert begun == ["cuda:0", "cuda:0"]


def test_ray_is_asked_for_a_gpu_a_worker(tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def remote(**needs: Any) -> Any:
        asked.update(needs)
        return lambda kind: SimpleNamespace(remote=lambda *given: asked.update(given=given))

    Actor(SimpleNamespace(remote=remote), tmp_path, 1, "cuda")
    assert (asked["num_gpus"], asked["given"]) == (1, (tmp_path, 1, "cuda"))
    Actor(SimpleNamespace(remote=remote), tmp_path, 1, None)
    assert asked["num_gpus"] == 0


def test_a_worker_loads_its_model_onto_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def load(name: str, device: str | None, encoder: str) -> Any:
        asked.append(device)
        raise RuntimeError("far enough")

    monkeypatch.setattr("tpatcher.bench.context.load", load)
    work = works(tiny.plan(tiny.setup(tmp_path, "bert"), "ft-all"))[0]
    assert Worker(tmp_path, device="cuda:1").attempt(work) == "RuntimeError: far enough"
    assert isinstance(executor_for("here", None, tmp_path, "cpu"), Inline)
    assert asked == ["cuda:1"]


def test_the_whole_experiment_trains_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Any] = []

    def train(base: str, data: object, task: str, out: Path, device: str | None) -> None:
        trained.append((base, task, out.name, device))
        tiny.setup(out.parent, {"classify": "bert", "seq2seq": "bart"}[task])
        (out.parent / {"classify": "bert", "seq2seq": "bart"}[task]).rename(out)

    monkeypatch.setattr(paper_setups, "train", train)
    monkeypatch.setattr(paper_setups, "dataset", lambda *_, **__: None)
    words = (tmp_path / "data", tmp_path / "out", Console(quiet=True))
    dry = paper_setups.paper_setups(*words, dry_run=True)
    assert not trained and [s.n_layers for s in dry] == [12, 6]
    made = paper_setups.paper_setups(*words, device="cuda")
    assert trained == [
        ("bert-base-uncased", "classify", "fever", "cuda"),
        ("facebook/bart-base", "seq2seq", "zsre", "cuda"),
    ]
    assert [(s.kind, s.data, s.path) for s in made] == [
        ("fc", "fever", tmp_path / "data"), ("qa", "zsre", tmp_path / "data"),
    ]  # fmt: skip
    assert paper_setups.paper_setups(*words) == made and len(trained) == 2


def test_one_command_for_all_of_it(tmp_path: Path) -> None:
    words = ["reproduce", "all", "--scale", "full", "--path", tmp_path, "--out", tmp_path / "out"]
    said = tpatcher(*words, "--dry-run").output
    assert "f0 is to be trained from bert-base-uncased" in said
    assert "fever.t-patcher-paper.19of20" in said and "zsre.sera.whole" in said
    assert "cannot be measured before f0 is trained" in said and "in all" not in said
    assert "give one --path" in str(tpatcher(*words, "--base", "bert").exception)
