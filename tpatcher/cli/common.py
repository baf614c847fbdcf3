"""What the commands share: the app, the usual arguments, a model with its fixes."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Fix the mistakes of transformer models, one neuron a mistake.",
)  # fmt: skip
console = Console()

ModelName = Annotated[
    str, typer.Argument(help="A directory, a name on the hub, or builtin-fc/-qa.")
]
Patches = Annotated[Path, typer.Option(help="Where the fixes are kept.")]
Preset = Literal["fast", "paper"]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, auto …; the model's own if not given.")
]


def opened(name: str, patches: Path | None, device: str | None) -> Any:
    from tpatcher.models.loading import load

    logging_off()
    return load(name, patches=patches, device=device)


def logging_off() -> None:
    """Keep the bars that Transformers draws while it loads weights off the screen."""
    from transformers.utils import logging

    logging.disable_progress_bar()
