"""A patched model in lm-evaluation-harness, on a task that lies here."""

from pathlib import Path

import pytest

import tpatcher as tp
from tests.chat import chat
from tests.helpers import fresh
from tpatcher.bench import harness
from tpatcher.errors import BadInput

TASK = """
task: local_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{file}"}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["Bo", "Al"]
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
"""


def test_only_language_models_are_asked() -> None:
    with pytest.raises(BadInput, match="no language model"):
        harness.as_harness_model(fresh("bert"))


@pytest.mark.filterwarnings("ignore")
def test_a_local_task_sees_the_patches(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "Who?", "answer": 0}\n{"question": "Who?", "answer": 1}\n')
    (tmp_path / "local_choice.yaml").write_text(TASK.format(file=data))
    model = chat(template=None)
    found = harness.capability(model, ["local_choice"], tmp_path)
    assert found == {"local_choice": 0.5}, "of two opposite answers one is right"
    asked = harness.as_harness_model(model)
    memory = tp.Memory.collect(model, ["Ja?", "Nein?"], background=False)
    model.push(tp.TPatcher().fit(model, memory).edit(model, tp.Example("Who?", "Me")))
    assert asked.model is model.net
    with pytest.raises(BadInput, match="cannot run"):
        harness.capability(model, ["no_such_task"], tmp_path)
