"""What the commands share: the app, the usual arguments, loading a model."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import rich
import typer
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from tpatcher import __version__

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
console = Console()


def _say_version(asked: bool) -> None:
    """Print the version and end, if asked to."""
    if asked:
        typer.echo(f"tpatcher {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Fix the mistakes of transformer models, one neuron a mistake."""


def models(incomplete: str) -> list[str]:
    """The models that a shell can complete: the built-in ones, and directories that hold one."""
    here = (path.parent for path in Path().glob(f"{incomplete}*/config.json"))
    return [n for n in (*BUILTIN, *map(str, here)) if n.startswith(incomplete)]


def _only_results_on_stdout(as_json: bool) -> bool:
    """Send all but the results to stderr, so that another program can read them."""
    for one in (console, rich.get_console()):  # the second draws the library's bars
        one.stderr = as_json
    return as_json


BUILTIN = ("builtin-fc", "builtin-qa")
ModelName = Annotated[
    str, Argument(help="A directory, a name on the hub, or builtin-fc/-qa.", autocompletion=models)
]
Patches = Annotated[Path, Option(help="The directory that keeps the fixes.")]
Traffic = Annotated[
    Path | None,
    Option(help="Ordinary texts to leave alone: .txt, .jsonl or .csv, no labels needed."),
]
Preset = Literal["fast", "text", "paper"]
Json = Annotated[
    bool,
    Option("--json", help="Results as JSON, one object a line.", callback=_only_results_on_stdout),
]
MaxNewTokens = Annotated[int | None, Option(help="The most tokens that an answer may have.", min=1)]
Dtype = Annotated[
    Literal["float32", "float16", "bfloat16"] | None,
    Option(help="What the model computes in; the checkpoint's own if not given."),
]
Quantize = Annotated[
    Literal["4bit", "8bit"] | None, Option(help="Load the weights in so many bits (bitsandbytes).")
]
Encoder = Annotated[
    str, Option(help="A sentence encoder by which fixes of the preset text read the text.")
]
Device = Annotated[str | None, Option(help="cpu, cuda, auto …; the model's own if not given.")]


def opened(name: str, patches: Path | None, device: str | None, **options: Any) -> Any:
    """The model, with the fixes in a directory; options are those of `load`."""
    from tpatcher.models.loading import load

    logging_off()
    return load(name, patches=patches, device=device, **options)


def fields_of(knobs: str) -> dict[str, Any]:
    """The editor's fields that `--knobs` holds as JSON."""
    try:
        found = json.loads(knobs)
    except ValueError as error:
        raise typer.BadParameter(f"{error} in {knobs!r}", param_hint="--knobs") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"give a JSON object; found {knobs!r}", param_hint="--knobs")
    return found


def plain(text: object, keep: str = "\u200c\u200d") -> str:
    """A text with its control characters spelled out, as JSON does: a terminal obeys none."""
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in str(text))


def emit(result: object) -> None:
    """Print one result as a line of JSON."""
    typer.echo(plain(json.dumps(result, ensure_ascii=False, default=str)))


def verbatim(text: object) -> str:
    """A text from elsewhere as `console.print` shows it word for word: no markup, no control."""
    return escape(plain(text))


def logging_off() -> None:
    """Keep the bars that Transformers draws while it loads weights off the screen."""
    from transformers.utils import logging

    logging.disable_progress_bar()
