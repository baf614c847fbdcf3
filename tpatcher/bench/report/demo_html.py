"""A report that is one HTML file: tables, curves, heat maps, and what was fixed."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tpatcher.bench import published
from tpatcher.bench.published import METRICS
from tpatcher.sme import Scores, Step

STYLE = """
:root { color-scheme: light dark; --fg: #1b1f24; --bg: #fff; --soft: #667; --line: #dde1e6;
  --good: #1a7f4b; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e8eb; --bg: #14171a; --soft: #99a;
  --line: #2c3238; --good: #57c98d; --card: #1c2126; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { margin: 2.5rem 0 .5rem; font-size: 1.25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; } p { max-width: 44rem; }
.soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, .text td { text-align: left; } .text th { text-align: left; }
.text td { white-space: normal; }
.paper { color: var(--soft); } .best { font-weight: 600; color: var(--good); }
code { background: var(--card); padding: .1rem .35rem; border-radius: 4px; font-size: .88em; }
figure { margin: .5rem 0; } .narrow { max-width: 27rem; } s { color: var(--soft); }
"""


@dataclass(frozen=True)
class Row:
    """One editor's result on one task."""

    editor: str
    scores: Scores
    steps: Sequence[Step]


@dataclass(frozen=True)
class Section:
    """One task of a report."""

    title: str
    about: str
    task: str
    rows: Sequence[Row]
    figures: Sequence[tuple[str, str]]  # caption, SVG


def html(title: str, about: str, command: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1><p class=soft>{escape(about)}</p>",
        f"<p>Made by <code>{escape(command)}</code>.</p>",
    ]
    for section in sections:
        parts += [f"<h2>{escape(section.title)}</h2><p>{escape(section.about)}</p>", table(section)]
        for caption, picture in section.figures:
            small = " class=narrow" if "patch" in caption.lower() else ""
            parts.append(f"<h3>{escape(caption)}</h3><figure{small}>{picture}</figure>")
        parts.append(fixed(section.rows[0]))
    return "\n".join(parts)


def table(section: Section) -> str:
    """The five metrics, ours and the paper's, side by side."""
    head = "".join(f"<th>{m}</th>" for m in (*METRICS, "edits", "s per edit"))
    lines = [f"<div class=scroll><table><tr><th>editor</th>{head}</tr>"]
    best = {m: max(getattr(r.scores, m) for r in section.rows) for m in METRICS}
    for row in section.rows:
        cells = "".join(
            f"<td class={'best' if getattr(row.scores, m) == best[m] else 'other'}>"
            f"{getattr(row.scores, m):.3f}</td>"
            for m in METRICS
        )
        more = f"<td>{row.scores.E}</td><td>{row.scores.seconds_per_edit:.3f}</td>"
        lines.append(f"<tr><td>{escape(row.editor)}</td>{cells}{more}</tr>")
        paper = published.row(row.editor, section.task)
        if paper:
            cells = "".join(f"<td>{paper[m]:.3f}</td>" for m in METRICS)
            lines.append(
                f"<tr class=paper><td>&emsp;in the paper</td>{cells}<td></td><td></td></tr>"
            )
    lines.append("</table></div>")
    return "".join(lines)


def fixed(row: Row, most: int = 12) -> str:
    """Some of the mistakes, before and after."""
    lines = [f"<h3>What {escape(row.editor)} fixed</h3><div class=scroll><table class=text>"]
    lines.append("<tr><th>asked</th><th>said before</th><th>says now</th></tr>")
    for step in [s for s in row.steps if s.fixed][:most]:
        lines.append(
            f"<tr><td>{escape(step.text)}</td><td><s>{escape(step.before)}</s></td>"
            f"<td>{escape(step.answer)}</td></tr>"
        )
    return "".join([*lines, "</table></div>"])
