"""The notebook runs from top to bottom, and what it keeps is what it shows."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

PATH = Path(__file__).parents[1] / "docs" / "story.ipynb"


def printed(cell: Any) -> str:
    """What a code cell printed or returned, as text; pictures are left out."""
    texts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]
    return "".join(text for text in texts if not re.match(r"<Figure|<matplotlib", text))


def test_the_notebook_keeps_its_outputs_and_no_error() -> None:
    cells = [c for c in nbformat.read(PATH, as_version=4).cells if c.cell_type == "code"]
    kept = [output for cell in cells for output in cell.outputs]
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    assert {o.output_type for o in kept} == {"stream", "display_data", "execute_result"}
    assert sum("image/png" in o.get("data", {}) for o in kept) == 3
    assert "stderr" not in {o.get("name") for o in kept}
    assert str(Path.home()) not in json.dumps(kept)


@pytest.mark.slow
def test_the_notebook_runs_and_says_the_same_of_undo_and_fixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbclient import NotebookClient

    root = str(PATH.parents[1])
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    kernel = tmp_path / "kernels" / "here"  # this Python, whichever kernels are installed
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": command, "display_name": "here", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(about))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.read(PATH, as_version=4)
    kept = [printed(c) for c in notebook.cells if c.cell_type == "code"]
    NotebookClient(notebook, timeout=1200, kernel_name="here").execute()
    now = [printed(c) for c in notebook.cells if c.cell_type == "code"]
    assert [bool(text) for text in now] == [bool(text) for text in kept]
    said = "".join(now)
    assert "with the fix the same logits: False" in said
    assert "after the undo the same logits: True" in said
    assert re.search(r"t-patcher +SR 1\.000 +GR \S+ +ER 1\.000", said)
    assert "right after loading: 40 of 40" in said and "after:  Ukraine" in said
