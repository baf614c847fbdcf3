"""A patched model in lm-evaluation-harness: what it can do beside its fixes.

The harness runs the net itself, which has its patches inside; any task of its own will do, and so
will a folder of local ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpatcher.errors import BadInput
from tpatcher.models.model import Model
from tpatcher.nets.causal import Causal


def as_harness_model(model: Model, batch: int = 8) -> Any:
    """The model as the harness's own class for Transformers models."""
    if not isinstance(model.task, Causal):
        raise BadInput(f"{model.name} is no language model; the harness asks for one")
    try:
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:
        raise BadInput(
            "the tasks of lm-evaluation-harness need lm-eval: pip install 'tpatcher[harness]'"
        ) from error
    return HFLM(pretrained=model.net, tokenizer=model.tokenizer, batch_size=batch)


def capability(
    model: Model, tasks: Sequence[str], folder: Path | None = None, limit: int | None = None
) -> dict[str, float]:
    """The score of each task, by its first metric; `folder` holds further tasks as YAML files."""
    asked = as_harness_model(model)  # says what is not installed
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    known = TaskManager(include_path=str(folder) if folder else None)
    try:
        found = simple_evaluate(
            asked,
            tasks=list(tasks),
            task_manager=known,
            limit=limit,
            bootstrap_iters=0,
            verbosity="ERROR",
        )
    except (KeyError, ValueError) as error:
        raise BadInput(f"lm-evaluation-harness cannot run {', '.join(tasks)}: {error}") from error
    return {task: _score(found["results"][task]) for task in tasks}


def _score(row: dict[str, Any]) -> float:
    """The first metric of a task's results, which also hold names and deviations."""
    return next(
        float(value)
        for name, value in row.items()
        if isinstance(value, float) and "stderr" not in name
    )
