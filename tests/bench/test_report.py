"""Every table and figure, rendered from results that are there."""

import csv
import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import made_up
from tpatcher.bench import published
from tpatcher.bench.experiments import ALL, TABLES, tables_named
from tpatcher.bench.report import tables as forms
from tpatcher.bench.report.figures import METRICS
from tpatcher.bench.reproduce import reproduce
from tpatcher.bench.scale import FULL, SMALL
from tpatcher.bench.setup import builtin_setups
from tpatcher.bench.table import Planned, ResultTable, plan
from tpatcher.errors import BadInput


@cache
def planned() -> list[Planned]:
    return plan(ALL, builtin_setups(), SMALL)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the results are."""
    made = tmp_path_factory.mktemp("results")
    made_up.write(planned(), made)
    return made


@pytest.fixture(scope="module")
def results(out: Path) -> list[ResultTable]:
    return [one.read(out) for one in planned()]


def test_all_that_the_paper_printed_stands_in_a_table(results: list[ResultTable]) -> None:
    """Every row of published.json is a row of ours, with every one of its columns."""
    there = {
        (r.table.name, r.setup.kind, row.row.name): (r, row) for r in results for row in r.rows
    }
    for name, table in published.numbers().items():
        for kind in ("fc", "qa") if name.startswith("table") else ():
            for printed in table.get(kind, {}):
                result, row = there[name, kind, printed]
                shown = {c: result.cell(row, c)[1].value for c in result.table.columns}
                assert shown == published.cells(name, kind, printed)


def test_every_claim_is_checked_against_numbers(results: list[ResultTable]) -> None:
    """On the paper's own numbers its main claims hold, and none is left open."""
    found = {(r.table.name, r.setup.kind, v.text): v for r in results for v in r.verdicts}
    assert {name for name, _, _ in found} == {table.name for table in ALL if table.claims}
    assert all(verdict.holds is not None for verdict in found.values())
    for kind in ("fc", "qa"):
        texts = [text for _, task, text in found if task == kind]
        for begin in ("T-Patcher holds all", "MEND collapses", "Without l_m the model is hurt"):
            [text] = [text for text in texts if text.startswith(begin)]
            assert next(v for (_, task, t), v in found.items() if (task, t) == (kind, text)).holds
    [kept] = TABLES["figure7"].claims
    assert "T-Patcher TrainR 0.9" in found["figure7", "qa", kept.text].numbers


def test_what_is_missing_is_left_open(tmp_path: Path) -> None:
    empty = planned()[0].read(tmp_path)
    assert {verdict.holds for verdict in empty.verdicts} == {None}
    assert "– (0.610)" in forms.as_text([empty], "md")


def test_every_form_of_a_table(results: list[ResultTable]) -> None:
    table1, table4 = ([r for r in results if r.table.name == name] for name in ("table1", "table4"))
    assert "T-Patcher, fast" in forms.as_text(table1, "md")
    assert "1.000 (1.000)" in forms.as_text(table1, "md")
    tex = forms.as_text(table1, "tex")
    assert tex.count(r"\toprule") == tex.count(r"\end{tabular}") == 2
    assert r"\textcolor{gray}{0.610}" in tex
    rows = list(csv.DictReader(forms.comma_separated(table1).splitlines()))
    assert len(rows) == 2 * 15 * 5
    assert {r["paper"] for r in rows if r["row"] == "ft-last" and r["metric"] == "GR"} == {
        "0.61", "0.58",
    }  # fmt: skip
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(forms.screen(table4[0]))
    assert "6.00 ± 1.00" in console.export_text()
    narrow = Console(width=70, file=io.StringIO(), record=True)
    narrow.print(forms.screen(table1[0]))
    assert "…" not in narrow.export_text(), "no number is cut"


def test_probes_that_were_measured_have_a_column(results: list[ResultTable]) -> None:
    """A row that has none of them shows a dash; a table that no row has them in, no column."""
    table7 = next(r for r in results if r.table.name == "table7")
    assert table7.columns == table7.table.columns
    first, *others = table7.rows
    [result] = first.results
    last = result.steps[-1]
    measured = {**last.retained, "sisters": (3, 4)}
    steps = [*result.steps[:-1], replace(last, retained=measured)]
    rows = [replace(first, results=[replace(result, steps=steps)]), *others]
    shown = replace(table7, rows=rows)
    assert shown.columns == (*METRICS, "Sisters", "E", "N")
    assert "| TestR | Sisters | E | N |" in forms.as_text([shown], "md")
    assert [shown.cells(row)[5] for row in rows[:2]] == [("0.750", "–"), ("–", "–")]
    assert "{lrrrrrrrr}" in forms.as_text([shown], "tex")


def test_all_is_written_and_every_link_leads_somewhere(out: Path) -> None:
    """All jobs are complete, so that `reproduce` only writes."""
    for one in planned():
        for job in (job for jobs in one.jobs.values() for job in jobs if job.fit_key):
            (out / "fits" / str(job.fit_key)).mkdir(parents=True, exist_ok=True)
            (out / "fits" / str(job.fit_key) / "fitted").touch()
    (out / "notes.md").write_text("## table1\nAs expected, 1 < 2.\n")
    setups = [one.setup for one in planned()[:2]]
    assert reproduce(Console(quiet=True), ALL, setups, SMALL, out, "tpatcher reproduce")
    names = {p.name for p in (out / "tables").iterdir()}
    assert {f"table{i}.{kind}" for i in range(1, 8) for kind in ("md", "tex", "csv")} <= names
    html = (out / "report.html").read_text()
    links = set(re.findall(r'href="#([^"]+)"', html))
    assert links
    assert links <= set(re.findall(r'id="([^"]+)"', html))
    assert not re.findall(r'(?:src|href)="?https?:', html), "one file, which needs no other"
    assert html.count("<svg role=") == 4 * 2 + 1  # figure 6 is of one task
    assert "As expected, 1 &lt; 2." in html
    assert "prefers-color-scheme: dark" in html
    assert "tpatcher sme builtin-qa --data builtin-qa --editor ft-all-kl" in html
    assert "2 folders with 15 mistakes" in html


def test_scales_and_names() -> None:
    assert tables_named([]) == tables_named(["all"]) == list(ALL)
    assert tables_named(["figure4", "table1"]) == [TABLES["table1"], TABLES["figure4"]]
    with pytest.raises(BadInput, match=r"unknown table 'table9'\. Did you mean"):
        tables_named(["table9"])
    assert "20 folders with all their mistakes" in FULL.about
    assert "2 folders with 3 mistakes" in SMALL.with_streams(edits=3).about
    assert "the first 6 (6) mistakes" in SMALL.with_streams(edits=3).about
    assert "all mistakes of the whole edit set" in SMALL.with_streams(whole="all").about
    assert SMALL.with_streams() is SMALL
