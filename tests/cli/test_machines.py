"""What other programs need of the command line: JSON, environment variables, completion."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer.main

import tpatcher as tp
from tests.helpers import TEXTS, commands, saved, serve_options, tpatcher
from tests.store.made import patch
from tpatcher import cli
from tpatcher.cli import service
from tpatcher.models.loading import load
from tpatcher.patches import pack
from tpatcher.store.store import Store

NO_RESULTS = {(), ("serve",), ("store",)}  # a group, or runs until it is stopped


def rows(*words: object) -> list[dict[str, Any]]:
    """What a command prints to stdout with --json: an object a line and nothing else."""
    out = tpatcher(*words, "--json")
    return [json.loads(line) for line in out.stdout.splitlines()]


def test_every_command_that_prints_results_prints_them_as_json() -> None:
    without = {words for words, options in commands().items() if "--json" not in options}
    assert without == NO_RESULTS


def test_fixing_as_json(tmp_path: Path) -> None:
    model, fixes = saved(tmp_path / "model", "bart"), tmp_path / "fixes"
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(TEXTS))
    mistakes = tmp_path / "mistakes.jsonl"
    asked = [("the capital of peru", "lima"), ("the capital of peru", "rome")]
    mistakes.write_text("\n".join(json.dumps({"text": t, "answer": a}) for t, a in asked))
    fix = ["fix", model, "--patches", fixes, "--file", mistakes, "--traffic", traffic]
    fixed, conflict = rows(*fix)
    assert fixed["outcome"] == "fixed" and fixed["now"] == "lima" != fixed["before"]
    assert fixed["certificate"]["memory_changed"] == 0
    assert conflict["outcome"] == "Conflict" and "fixed to" in conflict["error"]
    assert rows(*fix)[0]["outcome"] == "right already", "run again, it goes on"
    assert rows("answer", model, "the capital of peru", "--patches", fixes) == [
        {"text": "the capital of peru", "answer": "lima"}
    ]
    assert rows("log", "--patches", fixes)[0]["id"] == fixed["id"]
    assert rows("bake", model, tmp_path / "out", "--patches", fixes)[0]["largest_difference"] < 1e-4
    assert rows("undo", model, fixed["id"], "--patches", fixes) == [
        {"undone": [fixed["id"]], "wrong_again": [], "left": 0}
    ]
    assert tpatcher("log", "--patches", fixes).stdout, "without --json all is on stdout again"


def test_a_store_as_json(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    store = Store(url, pack.Base("m", "f00"))
    store.append(patch(1), who="ann")
    store.append(patch(2), who="ann")
    assert rows("store", "undo", url, 1) == [{"undone": 1}]
    states = [(e["action"], e["state"], e["text"]) for e in rows("store", "log", url)]
    assert states == [
        ("append", "", "question 1"), ("append", "live", "question 2"), ("remove", "", None),
    ]  # fmt: skip
    assert rows("store", "verify", url) == [{"sound": True, "live": [2], "damaged": {}}]
    store.close()


def test_a_token_as_json(tmp_path: Path) -> None:
    (made,) = rows("token", tmp_path / "tokens.jsonl", "ann", "fix")
    assert (made["name"], made["role"]) == ("ann", "fix")
    assert made["token"] not in (tmp_path / "tokens.jsonl").read_text()


def another(option: Any) -> object:
    """A value that an option of serve takes and that is not its default."""
    was, hint = option.default, get_type_hints(service.serve)[option.name]
    if isinstance(was, bool):
        return not was
    if isinstance(was, int | float):
        return was + 1
    choices = [one for part in (hint, *get_args(hint)) for one in get_args(part)]
    return next((one for one in choices if isinstance(one, str) and one != was), 7)


def test_every_option_of_serve_is_an_environment_variable_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container is set up by its environment."""
    given, expected = {}, {}
    for option in serve_options():
        value = another(option)
        given[f"TPATCHER_{option.name.upper()}"] = expected[option.name] = str(value)
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    seen: dict[str, Any] = {}
    serve = typer.main.get_command(cli.app).commands["serve"]  # type: ignore[attr-defined]
    serve.callback = lambda **found: seen.update(found)
    serve.main([], standalone_mode=False)
    assert {name: str(value) for name, value in seen.items()} == expected


def test_a_shell_completes_commands_options_and_models(tmp_path: Path) -> None:
    saved(tmp_path / "my-model", "bert")
    code = "from tpatcher.cli import main; import sys; sys.argv = ['tpatcher']; main()"

    def completed(line: str) -> list[str]:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        env = {**os.environ, **asked, "_TPATCHER_COMPLETE": "complete_bash"}
        env["PYTHONPATH"] = os.pathsep.join(map(str, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        return done.stdout.split()

    assert completed("tpatcher re") == ["reproduce"]
    assert completed("tpatcher answer b") == ["builtin-fc", "builtin-qa"]
    assert completed("tpatcher answer my") == ["my-model"]
    assert "--canaries" in completed("tpatcher serve --c")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['tpatcher', '--help']\n"
        "from tpatcher.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'transformers', 'numpy', 'safetensors', 'fastapi', 'sqlalchemy')\n"
        "print(*[name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in out.stdout and not out.stderr.strip()


def test_the_version_is_said() -> None:
    out = tpatcher("--version")
    assert (out.exit_code, out.stdout) == (0, f"tpatcher {tp.__version__}\n")


def test_a_pack_may_have_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--patches user/name` reaches `load` as it was typed."""
    model = saved(tmp_path / "model", "bert")
    pack.write(tmp_path / "fetched", [], load(model).base)
    asked: list[str] = []

    def found(where: object) -> Path:
        asked.append(str(where))
        return tmp_path / "fetched"

    monkeypatch.setattr("tpatcher.patches.hub.found", found)
    assert rows("answer", model, "is rome in italy ?", "--patches", "ann/fixes")
    assert asked == ["ann/fixes"]
