"""Operating: the service, who may use it, and a new base when there are many fixes."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from tpatcher.cli.common import Device, ModelName, app, console, logging_off, opened


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
    from tpatcher.service.auth import issue

    typer.echo(issue(file, name, role))


@app.command()
def consolidate(
    model: ModelName,
    out: Annotated[Path, typer.Argument(help="A new directory for the new base.")],
    store: Annotated[
        str | None, typer.Option(help="The service's store, which then goes on at the new base.")
    ] = None,
    patches: Annotated[Path | None, typer.Option(help="Or a pack of fixes.")] = None,
    memory: Annotated[Path | None, typer.Option(help="Ordinary texts, to be left alone.")] = None,
    canaries: Annotated[Path | None, typer.Option(help="Examples that must stay right.")] = None,
    flips: Annotated[int, typer.Option(help="Canaries that may become wrong.")] = 0,
    retention: Annotated[
        float, typer.Option(help="Share of held-out answers that must stay as they are.")
    ] = 0.95,
    steps: Annotated[int, typer.Option(help="Training steps at most.")] = 2000,
    new_store: Annotated[
        str | None, typer.Option(help="Where the new base's fixes go; OUT.db if not given.")
    ] = None,
    device: Device = None,
) -> None:
    """Teach the base all its fixes and begin an empty chain; running services move over.

    Nothing changes unless every fix, the canaries and the retention hold on the new base.
    """
    from tpatcher import data
    from tpatcher.checkpoints.consolidate import Recipe
    from tpatcher.checkpoints.consolidate import consolidate as teach
    from tpatcher.errors import BadInput

    if (store is None) == (patches is None):
        raise BadInput("give either --store, or --patches with a pack")
    base = opened(model, patches, device)
    texts = data.traffic(base.name, memory)
    kept = data.read_examples(canaries) if canaries else []
    recipe = Recipe(retention=retention, flips=flips, steps=steps)
    if store is None:
        _, report = teach(base, texts, out, canaries=kept, recipe=recipe, progress=True)
        carried = 0
    else:
        from tpatcher.checkpoints.handover import move
        from tpatcher.store.store import Store

        with closing(Store(store, base)) as old:
            done = move(
                base, old, texts, out, new_store, canaries=kept, recipe=recipe, progress=True
            )
        report, carried = done.report, done.carried
        console.print(f"services on {store} go on with {done.to.model} and {done.to.store}")
    console.print(
        f"consolidated: {out} knows {report.fixes} fixes; {report.kept:.1%} of {report.held_out} "
        f"held-out answers stay, {len(report.flipped)} of {report.canaries} canaries flipped, "
        f"{report.steps} steps, {carried} fixes that came in meanwhile",
        highlight=False,
    )


@app.command()
def stay(
    model: ModelName,
    store: Annotated[str, typer.Argument(help="A store that has moved to a new base.")],
    device: Device = None,
) -> None:
    """Take a consolidation back: services that start with this store use its own base again."""
    from tpatcher.store.store import Store

    with closing(Store(store, opened(model, None, device))) as kept:
        kept.undo_move(who="stay")
    console.print(f"{store} goes on with {model}; restart the services that had moved")
