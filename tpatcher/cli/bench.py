"""Measuring: what an edit and an answer cost."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tpatcher.cli.common import app
from tpatcher.errors import BadInput

bench = typer.Typer(no_args_is_help=True, help="Measure what editing costs on this machine.")
app.add_typer(bench, name="bench")


@bench.callback()
def measured() -> None:
    """Keeps `speed` a command of its own, although it is the only one."""


@bench.command()
def speed(
    as_json: Annotated[Path | None, typer.Option("--json", help="Figures as JSON.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these parts; see speed/.")] = None,
) -> None:
    """Speed, memory and growth as ratios measured side by side; from a checkout, for minutes."""
    root = Path(__file__).parents[2]
    if not (root / "speed" / "__main__.py").exists():
        raise BadInput("the speed figures are not in the package: clone the project, `make speed`")
    words = [*(["--json", str(as_json.absolute())] if as_json else [])]
    words += ["--only", *only] if only else []
    raise typer.Exit(subprocess.run([sys.executable, "-m", "speed", *words], cwd=root).returncode)
