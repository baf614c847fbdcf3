"""The report of a reproduction: one HTML file, every number linked to the command that made it."""

import re
from collections.abc import Sequence
from html import escape
from itertools import groupby

from tpatcher import __version__
from tpatcher.bench import published
from tpatcher.bench.claims import Checked, checked
from tpatcher.bench.experiments import TABLES, Task
from tpatcher.bench.report.demo_html import STYLE
from tpatcher.bench.report.pictures import picture
from tpatcher.bench.report.tables import head
from tpatcher.bench.results import Line, Sheet, shown
from tpatcher.bench.scale import Scale

MORE = """
a { color: inherit; text-decoration-color: var(--line); text-underline-offset: .2em; }
a:hover { text-decoration-color: currentColor; }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1rem 0 0; }
nav a, .tally { border: 1px solid var(--line); border-radius: 1rem; padding: .1rem .7rem;
  font-size: .85rem; text-decoration: none; }
nav a:hover { background: var(--card); }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; }
section h2 { margin-top: 1.25rem; } h2, li { scroll-margin-top: 1rem; }
td a { text-decoration: none; display: block; } td small { display: block; color: var(--soft); }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--bg); }
tr:target, li:target { background: var(--card); }
tr.ours td:first-child { font-weight: 600; }
ul.claims { list-style: none; padding: 0; margin: .75rem 0; max-width: 50rem; }
ul.claims li { padding-left: 1.6rem; text-indent: -1.6rem; margin: .2rem 0; font-size: .93rem; }
ul.claims b { display: inline-block; width: 1.6rem; text-indent: 0; }
.yes b { color: var(--good); } .no b { color: var(--bad); } .open b { color: var(--soft); }
.claims small { color: var(--soft); } .note { border-left: 3px solid var(--line);
  padding-left: .8rem; max-width: 44rem; }
figure.wide { overflow-x: auto; } figure.wide svg { min-width: 34rem; }
figure.single { max-width: 36rem; }
ol.made { padding-left: 0; list-style: none; font-size: .85rem; }
ol.made li { padding: .4rem .5rem; border-bottom: 1px solid var(--line); }
ol.made code { display: block; overflow-x: auto; white-space: nowrap; padding: .3rem .5rem;
  margin-top: .25rem; }
:root { --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --bad: #f2877e; } }
@media (max-width: 40rem) { body { font-size: 15px; padding: 1rem .75rem 3rem; }
  th, td { padding: .3rem .4rem; } th { white-space: normal; vertical-align: bottom; }
  table { font-size: .82rem; } td:first-child { white-space: normal; min-width: 5.2rem; } }
"""
LEGEND = (
    "In every cell the upper number is ours and the lower one, in gray, the paper's. A number "
    "leads to the commands that made it. ✓ and ✗ say whether a claim of the paper holds in our "
    "numbers."
)


def html(groups: Sequence[Sequence[Sheet]], scale: Scale, command: str, notes: str = "") -> str:
    """The whole page; notes are Markdown paragraphs under the headings of tables."""
    made: dict[str, Line] = {}
    verdicts = [c.holds for group in groups for sheet in group for c in checked(sheet)]
    beside = noted(notes)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>Transformer-Patcher, reproduced</title><style>{STYLE}{MORE}</style>",
        "<h1>Transformer-Patcher, reproduced</h1>",
        f"<p class=soft>{escape(published.numbers()['paper'])}</p>",
        f"<p>Scale <b>{scale.name}</b>: {escape(scale.about)}.</p>",
        *_ground(groups),
        f"<p>Made by <code>{escape(command)}</code> with tpatcher {__version__}.</p>",
        f"<p><span class=tally>{verdicts.count(True)} of {len(verdicts)} claims hold, "
        f"{verdicts.count(False)} do not</span></p><p class=soft>{LEGEND}</p><nav>",
        *(f'<a href="#{g[0].name}">{_short(g[0].name)}</a>' for g in groups if g),
        "</nav>",
    ]
    for group in groups:
        if group:
            parts.append(section(group, beside.get(group[0].name, ""), made))
    parts += ["<section><h2 id=commands>The commands</h2><ol class=made>"]
    parts += [_commands(anchor, line) for anchor, line in made.items()]
    return "\n".join([*parts, "</ol></section>"])


def section(group: Sequence[Sheet], note: str, made: dict[str, Line]) -> str:
    """A table or figure on every task, with the claims about it."""
    table = TABLES[group[0].name]
    parts = [f"<section><h2 id={group[0].name}>{escape(table.title)}</h2>"]
    if table.about:
        parts.append(f"<p>{escape(table.about)}</p>")
    if note:
        parts.append(f"<p class=note>{escape(note)}</p>")
    for sheet in group:
        parts.append(f"<h3>{escape(sheet.task.title)}</h3>")
        drawn = picture(sheet)
        if drawn:
            size = "single" if sheet.name in ("figure4", "frontier") else "wide"
            parts.append(f"<figure class={size}>{drawn}</figure>")
        if sheet.columns:
            parts.append(_table(sheet, made))
        found = checked(sheet)
        if found:
            parts.append(f"<ul class=claims>{''.join(map(_claim, found))}</ul>")
    return "".join([*parts, "</section>"])


def _table(sheet: Sheet, made: dict[str, Line]) -> str:
    heads = "".join(f"<th>{escape(head(c))}</th>" for c in sheet.columns)
    lines = [f"<div class=scroll><table><tr><th></th>{heads}</tr>"]
    for line in sheet.lines:
        anchor = _anchor(line)
        if line.results:
            made.setdefault(anchor, line)
        cells, papers = [], any(shown(sheet.cell(line, c))[1] != "–" for c in sheet.columns)
        for column in sheet.columns:
            ours, paper = shown(sheet.cell(line, column))
            linked = f'<a href="#{anchor}">{ours}</a>' if line.results else ours
            theirs = "&nbsp;" if paper == "–" else paper
            cells.append(f"<td>{linked}{f'<small>{theirs}</small>' * papers}</td>")
        partly = 0 < len(line.results) < line.wanted
        few = f"<small>{len(line.results)} of {line.wanted} jobs</small>" if partly else ""
        kind = " class=ours" if line.row.startswith("t-patcher") else ""
        lines.append(f"<tr{kind}><td>{escape(line.label)}{few}</td>{''.join(cells)}</tr>")
    return "".join([*lines, "</table></div>"])


def _claim(claim: Checked) -> str:
    kind = {True: "yes", False: "no", None: "open"}[claim.holds]
    return (
        f"<li class={kind}><b>{claim.sign}</b>{escape(claim.text)} "
        f"<small>{escape(claim.numbers)}</small></li>"
    )


def _anchor(line: Line) -> str:
    """Rows of several tables that are made of the same jobs share their commands."""
    return f"{line.results[0].job.key}-{len(line.results)}" if line.results else ""


def _commands(anchor: str, line: Line) -> str:
    job = line.results[0].job
    seconds = sum(r.said["seconds"] for r in line.results)
    told = "".join(
        f"<code>{escape(r.job.command(f'runs/{r.job.key}'))}</code>" for r in line.results
    )
    return (
        f'<li id="{anchor}"><b>{escape(line.label)}</b> on {escape(job.data)}, '
        f"{len(line.results)} job{'s' * (len(line.results) > 1)}, {seconds:.0f} s{told}</li>"
    )


def _ground(groups: Sequence[Sequence[Sheet]]) -> list[str]:
    """Each model, and how much of D_tr and D_test it has right, beside the paper's."""
    found: dict[Task, str] = {}
    paper = published.numbers()["text"]
    for sheet in (s for group in groups for s in group):
        first = next((r for line in sheet.lines for r in line.results), None)
        if first is not None and sheet.task not in found:
            rates, theirs = first.said["f0"], paper["accuracy of f0"][sheet.task.kind]
            found[sheet.task] = (
                f"{sheet.task.title}. The initial model is right on "
                f"{rates['train']['right']:.1%} of D_tr and "
                f"{rates['test']['right']:.1%} of D_test (the paper's "
                f"{paper['model'][sheet.task.kind]}: {theirs['D_tr']:.1%}, {theirs['D_test']:.1%})."
            )
    return [f"<p>{escape(told)}</p>" for told in found.values()]


def noted(notes: str) -> dict[str, str]:
    """Paragraphs by the "## table1" they stand under."""
    parts = re.split(r"^##\s+(\S+)\s*$", notes, flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _short(name: str) -> str:
    """table1: Table 1."""
    letters, number = ("".join(part) for _, part in groupby(f"{name} ", str.isalpha))
    return f"{letters.capitalize()} {number.strip()}".strip()
