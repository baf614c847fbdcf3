"""Docs that cannot rot: the README's example runs, the CLI reference is the CLI's own."""

import re
from pathlib import Path

import pytest
import typer.main
from typer.cli import get_docs_for_click

import tpatcher
from tpatcher import cli

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "docs").glob("*.md"))


def reference() -> str:
    """What `make docs` writes."""
    command = typer.main.get_command(cli.app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tpatcher")
    return f"{text.strip()}\n"


def test_the_cli_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run `make docs`"


def test_the_readmes_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(code[1], {})
    assert (tmp_path / "fixes" / "patches.json").exists()


@pytest.mark.parametrize("page", [ROOT / "README.md", *CHAPTERS], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_import_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, tpatcher; print('torch' in sys.modules, 'transformers' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
    assert "load" in dir(tpatcher)
    with pytest.raises(AttributeError):
        tpatcher.nothing
