"""Every table and figure of the paper, from one command."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from rich.console import Console

from tpatcher import files
from tpatcher.bench import runner
from tpatcher.bench.estimate import estimate
from tpatcher.bench.executors import Inline, Remote, executor_for
from tpatcher.bench.job import Work
from tpatcher.bench.progress import JobBars
from tpatcher.bench.published import numbers
from tpatcher.bench.report import tables as forms
from tpatcher.bench.report.html import page
from tpatcher.bench.rows import Row
from tpatcher.bench.scale import Scale
from tpatcher.bench.setup import Setup
from tpatcher.bench.table import Planned, ResultTable, Table, plan
from tpatcher.bench.tally import tally
from tpatcher.models.loading import BUILTIN


def reproduce(
    console: Console,
    tables: Sequence[Table],
    setups: Sequence[Setup],
    scale: Scale,
    out: Path,
    command: str,
    *,
    executor: str = "here",
    workers: int | None = None,
    device: str | None = None,
    dry_run: bool = False,
    skip: Collection[Row] = (),
    only: Collection[Row] = (),
) -> bool:
    """Run what is missing, show and write tables and report. Returns True if all is complete."""
    planned = plan(tables, setups, scale, skip, only)
    console.print(f"Scale [bold]{scale.name}[/]: {scale.about}.\n", highlight=False)
    for setup in setups:
        for note in setup.notes:
            console.print(f"{setup.title}: {note}", highlight=False)
        if setup.skip_bad:
            console.print(f"{setup.title}: {len(setup.skipped)} bad rows are left out")
            for row in setup.skipped:
                console.print(f"  {row}", highlight=False, markup=False)
    if dry_run:
        _list(console, runner.works(planned), out, workers or 1, device)
        return True
    out.mkdir(parents=True, exist_ok=True)
    where = executor_for(executor, workers, out, device)
    failed = run_plan(console, planned, out, where, command)
    results = [one.read(out) for one in planned]
    show(console, results)
    _write_tables(results, out)
    notes = ""
    with suppress(FileNotFoundError):
        notes = (out / "notes.md").read_text(encoding="utf-8")
    about = [numbers()["paper"], f"Scale {scale.name}: {scale.about}."]
    html = page(results, "Transformer-Patcher, reproduced", about, command, notes, failed)
    files.write_atomic(out / "report.html", html.encode())
    console.print(f"The report is in [bold]{out / 'report.html'}[/], tables in {out / 'tables'}.")
    return is_complete(planned, out)


def _list(
    console: Console, todo: Sequence[Work], out: Path, workers: int, device: str | None
) -> None:
    """Print what there is to do, with the time that it will take where that can be measured."""
    left = runner.missing(todo, out)
    ready = [work for work in left if Path(work.job.model).exists() or work.job.model in BUILTIN]
    if ready:
        console.print("Measuring a few steps of each kind of work …", highlight=False)
    seconds = estimate(ready, device)
    for work in todo:
        said = "complete" if work not in left else _span(seconds.get(work.key))
        console.print(work.key, said, highlight=False)
    console.print(f"{len(todo)} jobs and fits, {len(left)} left", highlight=False)
    if len(ready) < len(left):
        console.print(f"{len(left) - len(ready)} cannot be measured before f0 is trained")
    if ready:
        together = _span(sum(seconds.values()) / workers)
        console.print(f"{together} in all, by a few steps of each on this machine", highlight=False)


def _span(seconds: float | None) -> str:
    """A time as people say it.

    >>> [_span(s) for s in (None, 0.2, 90, 5400)]
    ['', 'about 1 s', 'about 2 min', 'about 1.5 h']
    """
    if seconds is None:
        return ""
    if seconds < 60:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 3600 else f"about {seconds / 3600:.1f} h"


def run_plan(
    console: Console, planned: Sequence[Planned], out: Path, executor: Inline | Remote, command: str
) -> dict[str, str]:
    """Run the jobs that are missing. Returns those that failed, and why."""
    todo = runner.works(planned)
    failed: dict[str, str] = {}
    with suppress(KeyboardInterrupt), JobBars(console, todo, out) as bars:
        failed = runner.run(todo, executor, out, bars)
    for key, why in failed.items():
        console.print(f"failed: {key}: {why}", highlight=False, markup=False)
    left = sum(not work.done(out) for work in todo)
    if left:
        console.print(f"{left} jobs are left. To go on where this ended:\n  {command}")
    return failed


def is_complete(planned: Sequence[Planned], out: Path) -> bool:
    """Whether every job of a plan, and every fit that one waits for, is done."""
    return all(work.done(out) for work in runner.works(planned))


def show(console: Console, results: Sequence[ResultTable]) -> None:
    """Print every table, and what its claims come to."""
    for result in results:
        if result.table.columns:
            console.print(forms.screen(result))
        for verdict in result.verdicts:
            console.print(f"  {verdict.sign} {verdict.text}: {verdict.numbers}", highlight=False)
    for line in (line for one in tally(results) for line in one.lines):
        console.print(line, highlight=False, markup=False)


def _write_tables(results: Sequence[ResultTable], out: Path) -> None:
    """Write every table in every form, and all of them in one Markdown file."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    whole = ["\n".join(f"- {line}" for line in one.lines) + "\n" for one in tally(results)]
    for table, group in groupby(results, key=lambda result: result.table):
        on_setups = list(group)
        if table.columns:
            whole.append(forms.as_text(on_setups, "md"))
            tex, csv = forms.as_text(on_setups, "tex"), forms.comma_separated(on_setups)
            for kind, text in {"md": whole[-1], "tex": tex, "csv": csv}.items():
                files.write_atomic(out / "tables" / f"{table.name}.{kind}", text.encode())
    files.write_atomic(out / "tables.md", "\n".join(whole).encode())
