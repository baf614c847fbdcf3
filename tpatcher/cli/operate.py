"""Operating: the service and who may use it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tpatcher.cli.base import Device, ModelName, app, logging_off


@app.command()
def serve(
    model: ModelName,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond loopback only with tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port.")] = 8000,
    store: Annotated[str, typer.Option(help="A file, or postgresql+psycopg://…")] = "fixes.db",
    memory: Annotated[Path | None, typer.Option(help="Ordinary texts, to be left alone.")] = None,
    canaries: Annotated[Path | None, typer.Option(help="Examples that must stay right.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="The file that `token` writes.")] = None,
    flips: Annotated[int, typer.Option(help="Canaries that a fix may flip.")] = 0,
    shadow: Annotated[bool, typer.Option(help="Only record what would have been done.")] = False,
    device: Device = None,
) -> None:
    """Serve a model: report a mistake, and the next user gets the right answer."""
    from tpatcher.service import serve as run

    logging_off()
    run(
        model, host=host, port=port, store=store, memory=memory, canaries=canaries, tokens=tokens,
        flips=flips, shadow=shadow, device=device,
    )  # fmt: skip


@app.command()
def token(
    file: Annotated[Path, typer.Argument(help="Where the hashed tokens are kept.")],
    name: Annotated[str, typer.Argument(help="Who it is for.")],
    role: Annotated[
        Literal["answer", "report", "fix", "admin"], typer.Argument(help="What it may do.")
    ],
) -> None:
    """Make a token for the service; it is shown once and kept only as a hash."""
    from tpatcher.service.access import issue

    typer.echo(issue(file, name, role))
