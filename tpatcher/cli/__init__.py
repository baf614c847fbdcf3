"""Do I know argv? The commands, each a few lines over the library, under the same names."""

import sys

from rich.console import Console

# Each module adds its commands, and --help lists them in this order.
# isort: off
from tpatcher.cli import fixes, service, reports, experiments, wild  # noqa: F401

# isort: on
from tpatcher.cli.common import app as app
from tpatcher.cli.common import verbatim
from tpatcher.errors import TPatcherError


def main() -> None:
    """Run a command; what went wrong is said in one line, not in a traceback."""
    try:
        app()
    except TPatcherError as error:
        Console(stderr=True).print(
            f"[red]{type(error).__name__}[/]: {verbatim(error)}", highlight=False
        )
        sys.exit(2)
