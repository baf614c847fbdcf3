"""The commands around the service: run it, let people in, look after its store and its base."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from tpatcher.cli.common import (
    Device,
    Dtype,
    Encoder,
    Json,
    MaxNewTokens,
    ModelName,
    Quantize,
    app,
    console,
    emit,
    logging_off,
    models,
    opened,
    verbatim,
)

Traffic = Annotated[Path | None, Option(help="Texts that the model is used on, to be left alone.")]
Canaries = Annotated[Path | None, Option(help="Examples that must stay right.")]


@app.command(context_settings={"auto_envvar_prefix": "TPATCHER"})
def serve(
    model: Annotated[
        str,
        Argument(
            help="A directory, a name on the hub, or builtin-fc/-qa.",
            autocompletion=models,
            envvar="TPATCHER_MODEL",
        ),
    ],
    host: Annotated[
        str, Option(help="The address to listen on; other than loopback only with --tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(help="The port to listen on.")] = 8000,
    store: Annotated[
        str, Option(help="Where the fixes are kept: a file, or postgresql+psycopg://…")
    ] = "fixes.db",
    traffic: Traffic = None,
    canaries: Annotated[
        Path | None,
        Option(help="Examples that must stay right; only an admin may fix one otherwise."),
    ] = None,
    preset: Annotated[
        Literal["fast", "text"], Option(help="text: keys of fixes read the whole text.")
    ] = "fast",
    tokens: Annotated[Path | None, Option(help="The file that `token` writes.")] = None,
    flips: Annotated[int, Option(help="How many canaries a fix may make wrong.")] = 0,
    share: Annotated[
        float, Option(help="The largest share of traffic that a fix may fire on.")
    ] = 0.01,
    shadow: Annotated[
        bool, Option(help="Let every fix through; only record what would be refused.")
    ] = False,
    private: Annotated[
        bool,
        Option(help="Show no text of the traffic, of canaries or of questions; audit none either."),
    ] = False,
    own_fixes: Annotated[
        bool, Option(help="Who is no admin may undo and supersede only their own fixes.")
    ] = False,
    abstain: Annotated[
        str | None,
        Option(help="What a text generator says instead of an answer only known to be wrong."),
    ] = None,
    fixes_a_day: Annotated[
        int, Option(help="How many fixes a caller who is no admin may make in 24 hours.", min=0)
    ] = 1000,
    deadline: Annotated[
        float, typer.Option(help="Seconds that an edit may take; after that it is given up.", min=0)
    ] = 30.0,
    drain: Annotated[
        int, Option(help="Seconds that running requests get to end after SIGTERM.")
    ] = 30,
    device: Device = None,
    max_new_tokens: MaxNewTokens = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    encoder: Encoder = "",
) -> None:
    """Serve a model: report a mistake, and the next user gets the right answer.

    Every option can be given as an environment variable too: TPATCHER_ and its name.
    """
    from tpatcher.service import serve as run
    from tpatcher.service.limits import Limits

    logging_off()
    run(
        model,
        host=host,
        port=port,
        store=store,
        traffic=traffic,
        canaries=canaries,
        preset=preset,
        tokens=tokens,
        max_flips=flips,
        max_firing_share=share,
        shadow=shadow,
        private=private,
        own_fixes_only=own_fixes,
        abstention=abstain,
        drain=drain,
        device=device,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
        quantize=quantize,
        encoder=encoder,
        limits=Limits(deadline=deadline, fixes_a_day=fixes_a_day),
    )


@app.command()
def token(
    file: Annotated[Path, Argument(help="The file that keeps the tokens' hashes.")],
    name: Annotated[str, Argument(help="Who the token is for.")],
    role: Annotated[Literal["answer", "report", "fix", "admin"], Argument(help="What it allows.")],
    as_json: Json = False,
) -> None:
    """Make a token for the service; it is shown once and kept only as a hash."""
    from tpatcher.service.auth import issue

    made = issue(file, name, role)
    emit({"name": name, "role": role, "token": made}) if as_json else typer.echo(made)


STORE = typer.Typer(no_args_is_help=True, help="Look into a store of fixes, and repair it.")
app.add_typer(STORE, name="store")
StoreUrl = Annotated[str, typer.Argument(help="A file, or postgresql+psycopg://…")]


@STORE.command("log")
def store_log(store: StoreUrl, as_json: Json = False) -> None:
    """List every entry of a store: what was done, to which fix, by whom, when."""
    from tpatcher.store.store import Store

    with closing(Store.existing(store)) as kept:
        damaged: dict[int, str] = {}
        entries = kept.log(damaged)
        found, unreadable = kept.readable_fixes([e.id for e in entries if e.action == "append"])
        live = set(kept.live_ids(damaged={}))
    damaged |= unreadable
    texts = {fix.id: fix.example.text for fix in found if fix.example}
    for entry in entries:
        state = "damaged" if entry.id in damaged else "live" if entry.id in live else ""
        if as_json:
            emit({**vars(entry), "state": state, "text": texts.get(entry.id)})
            continue
        target = "" if entry.target is None else entry.target
        # JSON escapes control characters: a text cannot change what the terminal shows
        words = [json.dumps(w) for w in (entry.who, texts.get(entry.id, "")) if w]
        line = f"{entry.id:>6}  {entry.at}  {entry.action:<8} {target:<6} {state:<8}"
        typer.echo(" ".join([line, *words]).rstrip())


@STORE.command("undo")
def store_undo(
    store: StoreUrl,
    fixes: Annotated[list[int], typer.Argument(help="The fixes to take out, by their numbers.")],
    as_json: Json = False,
) -> None:
    """Take fixes out of a store, damaged ones too; running services follow."""
    from tpatcher.store.store import Store

    with closing(Store.existing(store)) as kept:
        for number in fixes:
            kept.remove(number, who="store undo")
            emit({"undone": number}) if as_json else typer.echo(f"fix {number} is no longer live")


@STORE.command("prune")
def store_prune(
    store: StoreUrl,
    days: Annotated[int, Option(help="Keep what is younger than this.", min=1)] = 90,
    as_json: Json = False,
) -> None:
    """Delete old events of the audit log and old settled reports; fixes and the log stay."""
    from tpatcher.store.audit import Audit
    from tpatcher.store.reports import Reports
    from tpatcher.store.store import Store
    from tpatcher.store.tables import timestamp

    before = timestamp(hours_ago=24 * days)
    with closing(Store.existing(store)) as kept:
        events = Audit(lambda: kept).prune(before)
        reports = Reports(lambda: kept, limit=0).prune(before)
    if as_json:
        emit({"events": events, "reports": reports, "days": days})
        return
    typer.echo(f"deleted: {events} events, {reports} settled reports older than {days} days")


@STORE.command("export")
def store_export(
    store: StoreUrl,
    file: Annotated[Path, Argument(help="The file to write.")],
    form: Annotated[
        Literal["jsonl", "dify"],
        Option("--format", help="jsonl, for `fix --file`; dify, for its annotations."),
    ] = "jsonl",
    as_json: Json = False,
) -> None:
    """Write the texts and answers of the live fixes to a file."""
    from tpatcher import files
    from tpatcher.data.reports.export import EXPORTS
    from tpatcher.store.store import Store

    with closing(Store.existing(store)) as kept:
        ids = kept.live_ids(damaged={})
        found, damaged = kept.readable_fixes(ids)
    examples = [fix.example for fix in found if fix.example]
    files.write_atomic(file, "".join(EXPORTS[form](examples)).encode())
    if as_json:
        emit({"out": str(file), "fixes": len(examples), "damaged": len(damaged)})
        return
    typer.echo(f"{file}: {len(examples)} fixes; damaged and left out: {len(damaged)}")


@STORE.command("verify")
def store_verify(store: StoreUrl, as_json: Json = False) -> None:
    """Read all that a store holds, and name every fix that is not what was kept."""
    from tpatcher.store.store import Store

    with closing(Store.existing(store)) as kept:
        damaged, live = kept.verify(), set(kept.live_ids(damaged={}))
    if as_json:
        emit({"sound": not damaged, "live": sorted(live), "damaged": damaged})
        raise typer.Exit(bool(damaged))
    for number, why in damaged.items():
        state = "live: undo it" if number in live else "not live, so it does no harm"
        typer.echo(f"fix {number} is damaged ({state}): {why}")
    if damaged:
        raise typer.Exit(1)
    typer.echo(f"the store is sound; {len(live)} fixes are live")


@app.command()
def consolidate(
    model: ModelName,
    out: Annotated[Path | None, Argument(help="A new directory for the new base model.")] = None,
    store: Annotated[
        str | None, Option(help="The store of a service, which switches to the new base.")
    ] = None,
    patches: Annotated[Path | None, Option(help="A pack of fixes, instead of --store.")] = (None),
    traffic: Traffic = None,
    canaries: Canaries = None,
    flips: Annotated[int, Option(help="How many canaries may become wrong.")] = 0,
    retention: Annotated[
        float, Option(help="Share of held-out answers that must stay as they are.")
    ] = 0.95,
    steps: Annotated[int, Option(help="The largest number of training steps.")] = 2000,
    new_store: Annotated[
        str | None, Option(help="The store of the new base; OUT.db if not given.")
    ] = None,
    undo: Annotated[
        bool, Option("--undo", help="Take a consolidation of --store back instead.")
    ] = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Teach the base model all its fixes; running services switch to the new base.

    Nothing changes unless every fix, the canaries and the retention hold on the new base. With
    --undo, services that start with --store use the old base and all its fixes again.
    """
    from tpatcher import data
    from tpatcher.checkpoints.consolidate import Settings
    from tpatcher.checkpoints.consolidate import consolidate as teach
    from tpatcher.errors import BadInput

    if undo:
        if store is None or out is not None or patches is not None:
            raise BadInput("--undo needs --store and the old model, and neither OUT nor --patches")
        _undo(model, store, device)
        return
    if out is None or (store is None) == (patches is None):
        raise BadInput("give OUT, and either --store, or --patches with a pack")
    taught = opened(model, patches, device)
    texts = data.traffic(taught.name, traffic)
    examples = data.read_examples(canaries) if canaries else []
    settings = Settings(retention=retention, max_flips=flips, steps=steps)
    options: dict[str, Any] = {"canaries": examples, "settings": settings, "progress": True}
    if store is None:
        _, outcome = teach(taught, texts, out, **options)
    else:
        from tpatcher.checkpoints.handover import move
        from tpatcher.store.store import Store

        with closing(Store(store, taught.base)) as old:
            done = move(taught, old, texts, out, new_store, **options)
        outcome = done.outcome
        _say(f"services on {store} switch to {done.to.model} with the store {done.to.store}")
        _say(f"{done.fixed_again} fixes came in meanwhile and were made again on the new base")
    if as_json:
        emit({"out": str(out), **vars(outcome)})
        return
    _say(
        f"{out} has learned {outcome.fixes} fixes in {outcome.steps} steps; {outcome.kept:.1%} of "
        f"{outcome.held_out} held-out answers are unchanged, {len(outcome.flipped)} of "
        f"{outcome.canaries} canaries became wrong"
    )


def _undo(model: str, store: str, device: str | None) -> None:
    """Take a store's move to another base back."""
    from tpatcher.store.location import undo_move
    from tpatcher.store.store import Store

    with closing(Store(store, opened(model, None, device).base)) as kept:
        undo_move(kept, who="consolidate --undo")
    _say(f"{store} belongs to {model} again; restart the services that have switched")


def _say(text: str) -> None:
    console.print(verbatim(text), highlight=False)
