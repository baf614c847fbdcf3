"""Docs that cannot rot: examples run, and what the text names (options, classes, files) exists."""

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from http import HTTPStatus
from pathlib import Path

import pytest
import typer.main
from typer.cli import get_docs_for_click

import tpatcher
from tests.helpers import commands
from tpatcher import cli, errors

ROOT = Path(__file__).parents[1]
SERVICE = "".join(p.read_text() for p in (ROOT / "tpatcher" / "service").glob("*.py"))
STATUSES = {status.phrase.replace(" ", "") for status in HTTPStatus}
CHAPTERS = sorted((ROOT / "docs").glob("*.md"))

every_page = pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *CHAPTERS], ids=lambda p: p.name
)


def reference() -> str:
    """What `make docs` writes."""
    command = typer.main.get_command(cli.app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tpatcher")
    return f"{text.strip()}\n"


def test_the_cli_reference_is_up_to_date() -> None:
    pytest.importorskip("mkdocs", reason="older versions of Typer write arguments in another way")
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run `make docs`"


def test_the_readmes_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(code[1], {})
    assert (tmp_path / "fixes" / "patches.json").exists()


def test_import_is_light() -> None:
    code = "import sys, tpatcher; print('torch' in sys.modules, 'transformers' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.split() == ["False", "False"]
    assert "load" in dir(tpatcher)
    with pytest.raises(AttributeError):
        tpatcher.nothing


# ---- links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def broken_links(page: Path) -> list[str]:
    """The links of a page to files that do not exist, or to headings that their page has not."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):  # http:, mailto:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_a_heading_that_is_gone_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# zsRE: how much memory?\n```\n# a comment\n```\n")
    page = tmp_path / "page.md"
    links = ["other.md", "other.md#zsre-how-much-memory", "https://example.org/x#y", "#here"]
    gone = ["other.md#a-comment", "nowhere.md", "nowhere.md#here", "#there"]
    page.write_text("## Here\n" + " ".join(f"[a]({link})" for link in links + gone))
    assert broken_links(page) == gone


# ---- commands and their options


def code(page: str) -> list[str]:
    """The lines of the code blocks of a page, and its code spans."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.S | re.M)
    prose = re.sub(r"^```\w*\n.*?^```", "", page, flags=re.S | re.M)
    lines = [line for block in blocks for line in re.sub(r"\\\n", " ", block).splitlines()]
    return lines + [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def unknown_options(page: str) -> list[str]:
    """What a page says of the command line that the command line does not have.

    In `tpatcher COMMAND …` every option must be one of that command; in a code span that begins
    with an option, one of any command.
    """
    unknown = []
    for line in code(page):
        line = line.strip().removeprefix("$ ")
        path: tuple[str, ...] = ()
        if re.match(r"tpatcher( |$)", line):
            words = shlex.split(re.split(r"[&|;>]", line)[0], comments=True)[1:]
            while (*path, *words[:1]) in commands() and words:
                path = (*path, words.pop(0))
            known = commands()[path]
            if not path and words and re.match(r"[a-z]", words[0]):
                unknown.append(f"tpatcher {words[0]}")
        elif line.startswith("--"):
            words, known = line.split(), set().union(*commands().values())
        else:
            continue
        options = [word.partition("=")[0] for word in words if re.match(r"--\w", word)]
        unknown += [" ".join((*path, option)) for option in options if option not in known]
    return unknown


@every_page
def test_commands_and_options_in_the_docs_exist(page: Path) -> None:
    assert unknown_options(page.read_text()) == []


def test_an_option_that_is_gone_is_found() -> None:
    page = (
        "`tpatcher` has `--patches`, `--never` and `pip install --quiet`; `tpatcher never`.\n"
        "```\n$ tpatcher log --patches fixes \\\n  --traffic x  # not --this\nls --all\n```\n"
    )
    assert set(unknown_options(page)) == {"--never", "tpatcher never", "log --traffic"}


# ---- names of the code


@cache
def classes() -> dict[str, set[str]]:
    """Every class of the package, and the names that its body defines."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "tpatcher").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                body = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                fields = {
                    n.target.id
                    for n in node.body
                    if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                }
                found.setdefault(node.name, set()).update(body | fields)
    return found


def unknown_names(page: str) -> list[str]:
    """Classes and their methods, and files of this repository, that a page names in vain."""
    unknown = []
    for span in code(page):
        name = re.fullmatch(r"([A-Z]+[a-z]\w*)(?:\.(\w+))?(?:\(.*\))?", span)
        if name and (name[1] in STATUSES or f'"{name[1]}"' in SERVICE):
            continue  # the type of an error that the web framework or the service answers with
        if name and (name[1] not in classes() or (name[2] and name[2] not in classes()[name[1]])):
            unknown.append(span)
        files = [w for w in span.split() if re.fullmatch(r"(tpatcher|tests|docs|speed)/[\w./]*", w)]
        unknown += [file for file in files if not (ROOT / file).exists()]
    return unknown


@every_page
def test_classes_and_files_in_the_docs_exist(page: Path) -> None:
    assert unknown_names(page.read_text()) == []


def test_a_class_or_file_that_is_gone_is_found() -> None:
    page = "`Store`, `Stores`, `Conflict`, `Conflicts`, `Memory.collect(…)`, `Memory.forget`, `OUT`"
    files = "`tpatcher/errors.py` `tests/` `pytest tests/test_docs.py tests/test_desk.py`"
    assert unknown_names(page + files) == [
        "Stores", "Conflicts", "Memory.forget", "tests/test_desk.py",
    ]  # fmt: skip


def test_the_errors_of_an_edit_are_explained() -> None:
    """Whoever calls `edit` or loads a pack finds each error of theirs in docs/fix.md."""
    text = (ROOT / "docs" / "fix.md").read_text()
    raised = (
        errors.AlreadyRight, errors.Conflict, errors.Damaged, errors.NotFitted, errors.NotFixed,
        errors.WrongBase,
    )  # fmt: skip
    assert [e.__name__ for e in raised if f"`{e.__name__}`" not in text] == []


def findings(page: str) -> dict[str, str]:
    """The rows of the table of findings: what was found, and the cell that names its tests."""
    table = page.partition("## Findings and repairs")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "][1:]
    assert all(len(row) == 3 for row in rows)
    return {found: tests for found, _, tests in rows}


def named_tests(cell: str) -> list[tuple[str, str]]:
    """The tests that a cell names as `file`: `test`, `test`; …"""
    named, file = [], ""
    for span in re.findall(r"`([^`]+)`", cell):
        if span.endswith(".py"):
            file = span
        else:
            named.append((file, span))
    return named


def test_every_finding_names_tests_that_exist() -> None:
    rows = findings((ROOT / "docs" / "security.md").read_text())
    numbered = [f"H{n}." for n in range(1, 7)] + [f"M{n}." for n in range(1, 14)]
    assert [n for n in numbered if not any(found.startswith(n) for found in rows)] == []
    for found, cell in rows.items():
        assert cell == "out of the threat model" or named_tests(cell), found
        for file, test in named_tests(cell):
            assert f"def {test}(" in (ROOT / file).read_text(), f"{file}: {test}"
