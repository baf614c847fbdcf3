"""Nothing is bound to the CPU: edits on a GPU that is only pretended, and a look at the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tpatcher as tp
from tests import zoo
from tests.bench import tiny
from tests.helpers import ASKED, RIGHT, TEXTS, fresh
from tests.pretended_gpu import GPU, pretended_gpu
from tpatcher import sme
from tpatcher.editors import Editor, make
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.patches.neurons import Neurons

SLOW = pytest.mark.slow
CHECKED = {"validation": 4, "progress": False}
PACKAGE = Path(tp.__file__).parent
MAKERS = {
    f"torch.{name}" for name in (
        "arange", "as_tensor", "empty", "eye", "frombuffer", "from_numpy", "full", "linspace",
        "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros",
    )
}  # fmt: skip
MOVED = {"Parameter", "register_buffer", "to"}
BOOKS = "tokens, owners, rows and gaps are kept on the CPU, whatever the model's device"
DUAL = "duals and certificates are worked out on the CPU, with NumPy"
PATCH = "a patch is kept on the CPU; a model takes it to its device"
# Files whose tensors belong on the CPU where they do not say another place.
ON_THE_CPU = {
    "checkpoints/onnx.py": "onnxruntime gives NumPy arrays",
    "editors/grace.py": PATCH,
    "editors/tpatcher/check.py": DUAL,
    "bench/wild/drift.py": BOOKS,
    "editors/tpatcher/background.py": BOOKS,
    "editors/tpatcher/collecting.py": "a memory is collected on the CPU",
    "editors/tpatcher/contrast.py": BOOKS,
    "editors/tpatcher/dual.py": DUAL,
    "editors/tpatcher/keys.py": DUAL,
    "editors/tpatcher/max_margin.py": DUAL,
    "editors/tpatcher/memory.py": "a memory is collected on the CPU; `near` moves what is large",
    "editors/tpatcher/mistake.py": PATCH,
    "editors/tpatcher/paper.py": "draws of a generator that is the same on every device",
    "editors/tpatcher/values.py": "begins empty, and is replaced before it is used",
    "editors/trained/checkpoint.py": "what is saved",
    "editors/trained/hypernetwork.py": BOOKS,
    "models/everywhere.py": BOOKS,
    "models/retention.py": BOOKS,
    "models/traces.py": BOOKS,
    "nets/activation.py": "where an activation is flat, worked out once",
    "nets/beginnings.py": BOOKS,
    "nets/causal.py": BOOKS,
    "nets/generation.py": BOOKS,
    "nets/probe.py": BOOKS,
    "nets/rows.py": "no rows",
    "nets/tail.py": BOOKS,
    "nets/tasks.py": BOOKS,
    "patches/nearest_answer.py": PATCH,
    "service/answering.py": BOOKS,
    "service/likeness.py": BOOKS,
    "service/recent.py": BOOKS,
}


def on_gpu(name: str) -> tp.Model:
    """A model of the zoo on the pretended GPU."""
    net = zoo.net(name).to(GPU)
    net.tie_weights()  # tensors of another kind come untied
    task = zoo.ARCHITECTURES[name]
    return tp.Model(net, zoo.tokenizer(task), task, name=name)


def run(model: tp.Model, editor: Editor, mistakes: int = 1) -> list[sme.Step]:
    """The first steps of a stream of mistakes."""
    answers = RIGHT[model.task.name]
    stream = [tp.Example(text, answer) for text, answer in zip(ASKED, answers, strict=True)]
    stream = [e for e in stream if not model.correct([e])[0]][:mistakes]
    return list(sme.run(model, editor, stream, {"test": [tp.Example(TEXTS[0], "yes")]}, every=1))


@pytest.mark.parametrize("name", ["bert", pytest.param("bart", marks=SLOW)])
def test_a_stream_is_the_same_on_a_gpu(name: str) -> None:
    """SR, retention and all: the memory lies on the device, what a patch keeps on the CPU."""
    with pretended_gpu():
        model = on_gpu(name)
        editor = tp.TPatcher().fit(model, TEXTS)
        assert editor.memory is not None
        assert editor.memory.queries.device == GPU
        found = run(model, editor, mistakes=2)
        patch = model.patches[-1]
    assert isinstance(patch, Neurons) and patch.keys.device.type == "cpu"
    here = fresh(name)
    expected = run(here, tp.TPatcher().fit(here, TEXTS), mistakes=2)
    assert [s.fixed for s in found] == [True] * len(expected) == [s.fixed for s in expected]
    assert [s.retained for s in found] == [s.retained for s in expected]


@pytest.mark.parametrize(
    ("editor", "knobs"),
    [
        ("t-patcher", {"solver": {"name": "paper", "steps": 3}}),
        pytest.param(
            "t-patcher", {"solver": {"name": "paper", "steps": 3, "kl": True}}, marks=SLOW
        ),
        pytest.param("t-patcher", {"solver": {"name": "fast", "reads": "text"}}, marks=SLOW),
        pytest.param("ft-last-kl", {"learning_rate": 1e-2, "kl_batch": 4}, marks=SLOW),
        pytest.param("grace", {}, marks=SLOW),
        pytest.param("lora", {}, marks=SLOW),
        ("cache", {}),
        pytest.param("mend", tiny.quick("mend") | CHECKED, marks=SLOW),
        ("ke", tiny.quick("ke") | CHECKED),
        ("sera", tiny.quick("sera") | CHECKED),
        pytest.param("serac", tiny.quick("serac") | CHECKED, marks=SLOW),
    ],
    ids=["paper", "kl patch", "text", "ft-last-kl", "grace", "lora", "cache", "mend", "ke", "sera",
         "serac"],
)  # fmt: skip
def test_other_editors_edit_on_a_gpu(editor: str, knobs: dict[str, object]) -> None:
    with pretended_gpu():
        model = on_gpu("bert")
        memory = [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]
        steps = run(model, make(editor, **knobs).fit(model, memory))
    assert steps and all(step.error is None and step.patch for step in steps)


def test_the_pretended_gpu_refuses_what_a_gpu_refuses() -> None:
    with pretended_gpu():
        there = torch.ones(3, device=GPU)
        with pytest.raises(RuntimeError, match="two devices"):
            _ = there + torch.ones(3)
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            there.numpy()
        assert (there + torch.ones(())).sum().item() == 6
        assert there[torch.tensor([0])].cpu().tolist() == [1.0]


def test_a_memory_that_does_not_fit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, free = Memory(torch.zeros(40, 8)), 2 * 40 * 8 * 4
    assert memory.near(torch.device("cpu")) is memory
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 1, 1 << 30))
    assert memory.near(torch.device("cuda")) is memory


def placeless() -> Iterator[tuple[str, str]]:
    """Each call that makes a tensor and does not say where, by its file.

    What becomes a parameter or buffer moves with its module, and what is moved at once is said.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        moved = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _called(node) in MOVED
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in MAKERS
                and not any(word.arg == "device" for word in node.keywords)
                and id(node) not in moved
            ):
                line = text.splitlines()[node.lineno - 1].strip()
                yield path.relative_to(PACKAGE).as_posix(), f"line {node.lineno}: {line}"


def _called(node: ast.Call) -> str:
    """The last name of what is called: "Parameter" of nn.Parameter(…), "to" of x.to(…)."""
    return ast.unparse(node.func).rpartition(".")[2]


def test_no_tensor_is_made_without_saying_where() -> None:
    found = [(file, line) for file, line in placeless() if file not in ON_THE_CPU]
    assert not found, "say device=, or why the CPU is right in ON_THE_CPU"
