"""Every table and figure, rendered from results that are there."""

import csv
import io
import re
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import made_up
from tpatcher.bench import published
from tpatcher.bench.claims import CLAIMS, checked
from tpatcher.bench.experiments import TABLES, Plan, asked, plan
from tpatcher.bench.report import tables as render
from tpatcher.bench.reproduce import tasks_of
from tpatcher.bench.reproduce import written as write_all
from tpatcher.bench.results import Sheet, sheet
from tpatcher.bench.scale import FULL, SMALL
from tpatcher.errors import BadInput


@cache
def planned() -> Plan:
    return plan(TABLES, tasks_of(["builtin"], [], []), SMALL)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[list[Sheet]]:
    out = tmp_path_factory.mktemp("results")
    made_up.write(planned(), out)
    return [[sheet(n, t, rows, out) for t, rows in on.items()] for n, on in planned().items()]


def test_all_that_the_paper_printed_stands_in_a_table(groups: list[list[Sheet]]) -> None:
    """Every row of published.json is a row of ours, with every one of its columns."""
    there = {(s.name, s.task.kind, line.row): s for g in groups for s in g for line in s.lines}
    for name, table in published.numbers().items():
        for kind in ("fc", "qa") if name.startswith("table") else ():
            for row in table.get(kind, {}):
                one = there[name, kind, row]
                line = next(x for x in one.lines if x.row == row)
                assert {c: one.cell(line, c).paper for c in one.columns} == published.cells(
                    name, kind, row
                )


def test_every_claim_is_checked_against_numbers(groups: list[list[Sheet]]) -> None:
    """On the paper's own numbers its main claims hold, and none is left open."""
    found = {(s.name, s.task.kind, c.text): c for g in groups for s in g for c in checked(s)}
    assert {name for name, _, _ in found} == set(CLAIMS)
    assert all(c.holds is not None for c in found.values())
    for kind in ("fc", "qa"):
        assert found["table1", kind, "T-Patcher holds all five metrics"].holds
        assert found["table1", kind, "MEND collapses"].holds
        assert found["table3", kind, "Without l_m the model is hurt severely"].holds
    assert "TrainR: T-Patcher 0.9" in found["figure7", "qa", CLAIMS["figure7"][0].text].numbers


def test_what_is_missing_is_left_open(tmp_path: Path) -> None:
    [(task, rows), *_] = planned()["table1"].items()
    empty = sheet("table1", task, rows, tmp_path)
    assert {c.holds for c in checked(empty)} == {None}
    assert "– (0.610)" in render.markdown([empty])


def test_every_form_of_a_table(groups: list[list[Sheet]]) -> None:
    table1 = groups[0]
    assert "T-Patcher, fast" in render.markdown(table1)
    assert "1.000 (1.000)" in render.markdown(table1)
    tex = render.latex(table1)
    assert tex.count(r"\toprule") == tex.count(r"\end{tabular}") == 2
    assert r"\textcolor{gray}{0.610}" in tex
    rows = list(csv.DictReader(render.comma_separated(table1).splitlines()))
    assert len(rows) == 2 * 11 * 5
    assert {r["paper"] for r in rows if r["row"] == "ft-last" and r["metric"] == "GR"} == {
        "0.61", "0.58",
    }  # fmt: skip
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render.screen(groups[3][0]))
    assert "6.00 ± 1.00" in console.export_text()


def test_all_is_written_and_every_link_leads_somewhere(
    groups: list[list[Sheet]], tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("## table1\nAs expected.\n")
    write_all(Console(quiet=True), groups, SMALL, "tpatcher reproduce", tmp_path)
    names = {p.name for p in (tmp_path / "tables").iterdir()}
    assert {f"table{i}.{kind}" for i in range(1, 8) for kind in ("md", "tex", "csv")} <= names
    html = (tmp_path / "report.html").read_text()
    links = set(re.findall(r'href="#([^"]+)"', html))
    assert links
    assert links <= set(re.findall(r'id="?([^" >]+)"?', html))
    assert not re.findall(r'(?:src|href)="?https?:', html), "one file, which needs no other"
    assert html.count("<svg role=") == 4 * 2 + 1  # figure 6 is of one task
    assert "As expected." in html
    assert "prefers-color-scheme: dark" in html
    assert "tpatcher sme builtin-qa --data builtin-qa --editor ft-all-kl" in html
    assert "2 folders with 15 mistakes" in html


def test_scales_and_names() -> None:
    assert asked([]) == list(TABLES)
    assert asked(["figure4", "table1"]) == ["table1", "figure4"]
    with pytest.raises(BadInput, match="Available: table1"):
        asked(["table9"])
    assert "20 folders with all their mistakes" in FULL.about
    assert "2 folders with 3 mistakes" in SMALL.bounded(3).about
    assert SMALL.bounded(None) is SMALL
