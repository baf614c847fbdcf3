"""What the commands share: the app, the usual arguments, loading a model and its traffic."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from tpatcher.errors import NotFitted

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Fix the mistakes of transformer models, one neuron a mistake.",
)
console = Console()

ModelName = Annotated[
    str, typer.Argument(help="A directory, a name on the hub, or builtin-fc/-qa.")
]
Patches = Annotated[Path, typer.Option(help="The directory that keeps the fixes.")]
Traffic = Annotated[
    Path | None,
    typer.Option(help="Ordinary texts to leave alone: .txt, .jsonl or .csv, no labels needed."),
]
Preset = Literal["fast", "paper"]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, auto …; the model's own if not given.")
]


def opened(name: str, patches: Path | None, device: str | None) -> Any:
    """The model, with the fixes in a directory."""
    from tpatcher.models.loading import load

    logging_off()
    return load(name, patches=patches, device=device)


def ordinary_texts(name: str, traffic: Path | None) -> list[str]:
    """The texts of the traffic file; without one, those known for a built-in model."""
    from tpatcher import data

    try:
        return data.traffic(name, traffic)
    except NotFitted as error:
        raise NotFitted(f"{error} (--traffic FILE)") from error


def logging_off() -> None:
    """Keep the bars that Transformers draws while it loads weights off the screen."""
    from transformers.utils import logging

    logging.disable_progress_bar()
