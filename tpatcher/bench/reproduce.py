"""Every table and figure of the paper, from one command."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from tpatcher import files
from tpatcher.bench import estimate
from tpatcher.bench import runner as where
from tpatcher.bench.claims import checked
from tpatcher.bench.experiments import Plan, Task, plan
from tpatcher.bench.progress import Screen
from tpatcher.bench.report import html as page
from tpatcher.bench.report import tables as render
from tpatcher.bench.results import Sheet, sheet
from tpatcher.bench.runner import Here, OnRay, Place, Processes, Work
from tpatcher.bench.scale import Scale
from tpatcher.data import DATASETS
from tpatcher.errors import BadInput
from tpatcher.models.loading import load

FORMATS = {"md": render.markdown, "tex": render.latex, "csv": render.comma_separated}


def tasks_of(
    data: Sequence[str], models: Sequence[str], paths: Sequence[Path], without: Path | None = None
) -> list[Task]:
    """The tasks that a command names: "builtin" is both, any other needs its model and folder."""
    if list(data) == ["builtin"]:
        if models or paths:
            raise BadInput("builtin brings its own models and data: leave --model and --path out")
        return [Task("fc", "builtin-fc", "builtin-fc"), Task("qa", "builtin-qa", "builtin-qa")]
    if len(models) != len(data):
        raise BadInput(f"{len(data)} --data need as many --model; found {len(models)}")
    folders = list(paths)
    found = []
    for said, model in zip(data, models, strict=True):
        name, path = said, None
        if said not in DATASETS:
            name, path = "own", Path(said)
        elif not said.startswith("builtin-"):
            if not folders:
                raise BadInput(f"the dataset {said!r} needs --path, the folder that holds it")
            path = folders.pop(0)
        kind: Literal["fc", "qa"] = "fc" if load(model).task.name == "classify" else "qa"
        found.append(Task(kind, name, model, path, without if name == "zsre" else None))
    return found


def works(planned: Plan) -> list[Work]:
    """Each job once, and before it the fit that it waits for."""
    out: dict[str, Work] = {}
    for tasks in planned.values():
        for task, rows in tasks.items():
            for job in (job for jobs in rows.values() for job in jobs):
                needs = job.fit_key
                if needs is not None:
                    out.setdefault(needs, Work(needs, job, task.kind, only_fit=True))
                out.setdefault(job.key, Work(job.key, job, task.kind, needs=needs))
    return list(out.values())


def reproduce(
    console: Console,
    names: Sequence[str],
    tasks: Sequence[Task],
    scale: Scale,
    out: Path,
    command: str,
    on: str = "here",
    workers: int | None = None,
    dry_run: bool = False,
    skip: Collection[str] = (),
) -> bool:
    """Run what is missing, show and write the tables and the report; whether all of it is there."""
    planned = plan(names, tasks, scale, skip)
    todo = works(planned)
    seconds = {w.key: estimate.seconds(w) for w in todo}
    console.print(f"Scale [bold]{scale.name}[/]: {scale.about}.\n", highlight=False)
    if dry_run:
        console.print(listed(todo, seconds, out))
        return True
    out.mkdir(parents=True, exist_ok=True)
    place = placed(on, workers, out)
    edits = {w.key: estimate.edits(w) for w in todo}
    failed: dict[str, str] = {}
    stopped = False
    try:
        with Screen(console, todo, out, seconds, edits, place.slots) as screen:
            failed = where.run(todo, place, out, screen)
    except KeyboardInterrupt:
        stopped = True
    sheets = [
        [sheet(name, task, rows, out) for task, rows in on_tasks.items()]
        for name, on_tasks in planned.items()
    ]
    written(console, sheets, scale, command, out)
    for key, why in failed.items():
        console.print(f"[red]{key}[/] failed: {why}", highlight=False)
    if stopped or failed:
        left = sum(not w.done(out) for w in todo)
        console.print(f"{left} jobs are left. To go on where this ended:\n  {command}")
    return not (stopped or failed)


def placed(on: str, workers: int | None, out: Path) -> Place:
    """Where to run: "here" with one worker is this process."""
    if on == "here":
        return Here(out) if workers in (None, 1) else Processes(out, workers or 1)
    if on == "ray" or on.startswith("ray://"):
        return OnRay(out, on, workers)
    raise BadInput(f"unknown place {on!r} to run jobs: give here, ray or ray://HOST:PORT")


def listed(todo: Sequence[Work], seconds: dict[str, float], out: Path) -> Table:
    """The jobs, what each is, and how long it may take on one core."""
    table = Table("job", "about", "state")
    left = 0.0
    for work in todo:
        done = work.done(out)
        left += 0 if done else seconds[work.key]
        table.add_row(work.key, "–" if done else _long(seconds[work.key]), "done" if done else "")
    table.caption = (
        f"{len(todo)} jobs and fits; about {_long(left)} left on one core, a rough guess from what "
        "the built-in models take"
    )
    return table


def written(
    console: Console, sheets: Sequence[Sequence[Sheet]], scale: Scale, command: str, out: Path
) -> None:
    """Show every table, and write it in every form; the report holds them all."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    whole = []
    for group in sheets:
        for one in group:
            if one.columns:
                console.print(render.screen(one))
            for claim in checked(one):
                console.print(f"  {claim.sign} {claim.text}: {claim.numbers}", highlight=False)
        for kind, rendered in FORMATS.items():
            if group and group[0].columns:
                text = rendered(group)
                files.replace(out / "tables" / f"{group[0].name}.{kind}", text.encode())
                whole += [text] if kind == "md" else []
    files.replace(out / "tables.md", "\n".join(whole).encode())
    notes = ""
    with suppress(FileNotFoundError):
        notes = (out / "notes.md").read_text(encoding="utf-8")
    html = page.html(sheets, scale, command, notes)
    files.replace(out / "report.html", html.encode())
    console.print(f"The report is in [bold]{out / 'report.html'}[/], tables in {out / 'tables'}.")


def _long(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
