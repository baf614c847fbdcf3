"""The command line, as a user types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.service import served
from tests.test_rules import TEXTS, fresh
from tests.test_tasks import saved
from tpatcher import cli
from tpatcher.errors import Refused, TPatcherError
from tpatcher.models.loading import load
from tpatcher.store.store import Store


def tpatcher(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(w) for w in words], env={"COLUMNS": "200"})


def test_fix_answer_log_undo(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    model = saved(tmp_path / "model", "bart")
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(TEXTS))
    fixes = tmp_path / "fixes"
    asked = "the capital of peru"
    before = fresh("bart").answer([asked])[0]
    fix = ["fix", model, "--patches", fixes, "--text", asked, "--answer", "lima"]
    out = tpatcher(*fix)
    assert isinstance(out.exception, TPatcherError)
    assert "--traffic" in str(out.exception)
    out = tpatcher(*fix, "--traffic", traffic)
    assert out.exit_code == 0, out.output
    assert "fixed" in out.output
    assert tpatcher("answer", model, asked, "--patches", fixes).output.strip() == "lima"
    assert "right already" in tpatcher(*fix).output
    mistakes = tmp_path / "mistakes.jsonl"
    rows = [
        {"text": "who wrote hamlet ?", "answer": "shakespeare"},
        {"text": asked, "answer": "rome"},
    ]
    mistakes.write_text("\n".join(map(json.dumps, rows)))
    out = tpatcher("fix", model, "--patches", fixes, "--file", mistakes)
    assert out.exit_code == 1
    assert "Conflict" in out.output
    assert out.output.count("fixed") >= 1
    lines = tpatcher("log", "--patches", fixes, "--json").output.splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert len(ids) == 2
    assert ids[0] in tpatcher("log", "--patches", fixes).output
    out = tpatcher("undo", model, *ids, "--patches", fixes)
    assert "0 fixes are left" in out.output
    assert tpatcher("answer", model, asked, "--patches", fixes).output.strip() == before


def test_what_to_fix_must_be_said(tmp_path: Path) -> None:
    out = tpatcher("fix", "builtin-fc", "--patches", tmp_path)
    assert "--text and --answer" in str(out.exception)


def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tpatcher", "answer", "no/such-model", "hello"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "cannot load 'no/such-model'" in capsys.readouterr().err.replace("\n", " ")


def test_consolidate_and_stay(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, texts, fixes = tmp_path / "model", tmp_path / "texts.txt", tmp_path / "fixes"
    said = served.fitted()[0].answer([served.ASKED])[0]
    right = served.wrong(said)
    fix = ["fix", model, "--patches", fixes, "--traffic", texts, "--text", served.ASKED]
    assert tpatcher(*fix, "--answer", right).exit_code == 0
    base = load(model)
    store = Store(tmp_path / "s.db", base)
    store.import_pack(fixes)
    common = ["--memory", texts, "--retention", "0.5"]
    out = tpatcher("consolidate", model, tmp_path / "new", *common)
    assert "either --store" in str(out.exception)
    out = tpatcher("consolidate", model, tmp_path / "new", "--patches", fixes, *common)
    assert out.exit_code == 0 and "knows 1 fixes" in " ".join(out.output.split()), out.output
    assert tpatcher("answer", tmp_path / "new", served.ASKED).output.strip() == right
    bad = ["consolidate", model, tmp_path / "bad", "--store", tmp_path / "s.db", *common]
    out = tpatcher(*bad, "--retention", "1.1", "--steps", "1")
    assert isinstance(out.exception, Refused) and not (tmp_path / "bad").exists()
    out = tpatcher("consolidate", model, tmp_path / "b", "--store", tmp_path / "s.db", *common)
    assert out.exit_code == 0 and (tmp_path / "b.db").exists()
    assert store.successor() is not None
    out = tpatcher("stay", model, tmp_path / "s.db")
    assert out.exit_code == 0 and store.successor() is None
    store.close()
