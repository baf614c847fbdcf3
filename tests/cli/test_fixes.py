"""The commands that fix, as a user types them."""

import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.helpers import QUESTIONS, TEXTS, fresh, saved, tpatcher, wrong_label
from tests.service import served
from tests.store.made import patch
from tpatcher import cli
from tpatcher.editors.tpatcher import PRESETS, Paper
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import TPatcherError
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.patches import pack


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


def test_the_papers_preset_says_when_a_mistake_is_not_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fixes = saved(tmp_path / "model", "bert"), tmp_path / "fixes"
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(TEXTS))
    asked = "the capital of peru"
    right = wrong_label(fresh("bert"), asked)
    fix = ["fix", model, "--patches", fixes, "--text", asked, "--answer", right]
    fix += ["--preset", "paper", "--traffic", traffic]
    monkeypatch.setitem(PRESETS, "paper", partial(Paper, steps=1))
    monkeypatch.setattr(PRESETS["paper"], "skips_bos", True, raising=False)
    out = tpatcher(*fix)
    assert out.exit_code == 1
    assert out.output.count("not fixed") == 1 and "not kept" in out.output
    assert not pack.index(fixes)
    monkeypatch.setitem(PRESETS, "paper", partial(Paper, use_lm1=False, use_lm2=False))
    monkeypatch.setattr(PRESETS["paper"], "skips_bos", True, raising=False)
    out = tpatcher(*fix)
    assert out.exit_code == 0, out.output
    assert "not fixed" not in out.output and "fixed" in out.output
    assert pack.read(fixes)[0].certificate.fixed is True


def test_the_papers_memory_follows_right_answers_where_the_traffic_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = Memory.collect

    def collect(model: Any, items: Any, **more: Any) -> Memory:
        seen.append((items[0], more["skip_bos"]))
        return real(model, items, **more)

    monkeypatch.setattr(Memory, "collect", collect)
    model, fixes = saved(tmp_path / "model", "bart"), tmp_path / "fixes"
    answered, texts = tmp_path / "answered.jsonl", tmp_path / "texts.txt"
    rows = [{"text": text, "answer": "lima"} for text in TEXTS]
    answered.write_text("\n".join(map(json.dumps, rows)))
    texts.write_text("\n".join(TEXTS))
    said = fresh("bart").answer([TEXTS[0]])[0]  # right already: nothing is trained
    fix = ["fix", model, "--patches", fixes, "--text", TEXTS[0], "--answer", said]

    def own_answers(*words: object) -> bool:
        """Whether the command says that it follows them; a terminal may break the line."""
        return "own answers" in " ".join(tpatcher(*fix, *words).output.split())

    assert not own_answers("--traffic", texts)
    assert own_answers("--preset", "paper")  # of the fast preset's memory
    assert not own_answers("--preset", "paper", "--traffic", answered)
    assert own_answers("--preset", "paper", "--traffic", texts)
    assert seen == [(TEXTS[0], False), (Example(TEXTS[0], "lima"), True), (TEXTS[0], True)]


def test_a_fix_waits_for_another_writer_and_keeps_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.save(tmp_path)
    model, fixes = tmp_path / "model", tmp_path / "fixes"
    common = ["fix", model, "--patches", fixes, "--traffic", tmp_path / "texts.txt"]
    said = served.fitted()[0].answer([served.ASKED])[0]
    base, waits, done = load(model).base, threading.Event(), list[Result]()
    monkeypatch.setattr("tpatcher.cli.fixes._say_waiting", lambda patches: waits.set())

    def fix() -> None:
        words = ["--text", served.ASKED, "--answer", served.wrong(said)]
        done.append(tpatcher(*common, *words))

    with pack.lock(fixes):
        thread = threading.Thread(target=fix)
        thread.start()
        assert waits.wait(120)
        pack.write(fixes, [patch(1)], base)
    thread.join()
    assert done[0].exit_code == 0, done[0].output
    kept = pack.read(fixes)
    assert len(kept) == 2 and kept[0].id == patch(1).id
    waits.clear()
    undo = ["undo", model, "--patches", fixes]
    with pack.lock(fixes):
        thread = threading.Thread(target=tpatcher, args=[*undo, kept[1].id])
        thread.start()
        assert waits.wait(120)
        pack.write(fixes, [*kept, patch(2)], base)
    thread.join()
    assert [p.id for p in pack.read(fixes)] == [patch(1).id, patch(2).id]


@pytest.mark.slow
def test_two_processes_that_fix_at_once_lose_nothing(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, fixes = tmp_path / "model", tmp_path / "fixes"
    answers = dict(zip(QUESTIONS, served.fitted()[0].answer(QUESTIONS), strict=True))
    processes = []
    for half in (0, 1):
        file = tmp_path / f"{half}.jsonl"
        rows = [{"text": t, "answer": served.wrong(answers[t])} for t in QUESTIONS[half::2]]
        file.write_text("\n".join(map(json.dumps, rows)))
        words = [
            "fix",
            model,
            "--patches",
            fixes,
            "--file",
            file,
            "--traffic",
            tmp_path / "texts.txt",
        ]
        processes.append(subprocess.Popen(
            [sys.executable, "-c", "from tpatcher.cli import main; main()", *map(str, words)],
            stdout=subprocess.PIPE, text=True,
        ))  # fmt: skip
    said = [process.communicate(timeout=300)[0] for process in processes]
    fixed = sum(line.startswith("fixed") for text in said for line in text.splitlines())
    assert fixed == len(pack.read(fixes)) >= 4


def test_what_to_fix_must_be_said(tmp_path: Path) -> None:
    out = tpatcher("fix", "builtin-fc", "--patches", tmp_path)
    assert "--text with --answer" in str(out.exception)


def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tpatcher", "answer", "no/such-model", "hello"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "cannot load 'no/such-model'" in capsys.readouterr().err.replace("\n", " ")


def test_bake_writes_a_checkpoint_that_answers_like_the_fixed_model(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, fixes, out = tmp_path / "model", tmp_path / "fixes", tmp_path / "out"
    right = served.wrong(served.fitted()[0].answer([served.ASKED])[0])
    fix = ["fix", model, "--patches", fixes, "--traffic", tmp_path / "texts.txt"]
    assert tpatcher(*fix, "--text", served.ASKED, "--answer", right).exit_code == 0
    done = tpatcher("bake", model, out, "--patches", fixes)
    assert done.exit_code == 0 and "logits differ by at most" in done.output, done.output
    assert tpatcher("answer", out, served.ASKED).output.strip() == right
    done = tpatcher("bake", model, out, "--patches", fixes)
    assert "not empty" in str(done.exception)


def test_fixes_by_a_sentence_encoder_are_kept_asked_baked_and_undone(tmp_path: Path) -> None:
    model, fixes = saved(tmp_path / "model", "bert"), tmp_path / "fixes"
    encoder = ["--encoder", saved(tmp_path / "encoder", "distilbert")]
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(TEXTS))
    text, label = QUESTIONS[0], wrong_label(load(model), QUESTIONS[0])
    fix = ["fix", model, "--patches", fixes, "--text", text, "--answer", label]
    assert tpatcher(*fix, "--preset", "text", "--traffic", traffic, *encoder).exit_code == 0
    ask = ["answer", model, text, "--patches", fixes]
    assert tpatcher(*ask, *encoder).output.strip() == label
    without = tpatcher(*ask)
    assert isinstance(without.exception, TPatcherError) and "encoder=" in str(without.exception)
    done = tpatcher("bake", model, tmp_path / "baked", "--patches", fixes, *encoder)
    assert "solved again for their positions" in done.output
    assert tpatcher("answer", tmp_path / "baked", text).output.strip() == label
    (one,) = pack.read(fixes)
    assert tpatcher("undo", model, one.id, "--patches", fixes, *encoder).exit_code == 0
    assert tpatcher(*ask, *encoder).output.strip() != label


def test_help_lists_what_users_need_before_what_researchers_need() -> None:
    said = tpatcher("--help").output
    names = ["fix", "answer", "undo", "log", "bake", "serve", "demo", "sme", "reproduce"]
    places = [said.index(f"│ {name} ") for name in names]
    assert places == sorted(places)


def test_brackets_and_control_characters_in_a_text_are_harmless(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, fixes = tmp_path / "model", tmp_path / "fixes"
    asked = "[/INST] rome is in peru [citation needed] \x1b]0;owned\x07 \u202e\u2028"
    fix = ["fix", model, "--patches", fixes, "--traffic", tmp_path / "texts.txt", "--text", asked]
    right = served.wrong(load(model).answer([asked])[0])
    log = ["log", "--patches", fixes]
    undo = ["undo", model, "--patches", fixes]
    made = tpatcher(*fix, "--answer", right)
    assert made.exit_code == 0, made.output
    id = json.loads(tpatcher(*log, "--json").output)["id"]
    for out in (made, tpatcher(*fix, "--answer", right), tpatcher(*fix, "--answer", "[/x] no")):
        assert "[/INST] rome" in out.output or "[/x] no" in out.output
        assert not any(sign in out.output for sign in "\x1b\x07\u202e\u2028")
    table = tpatcher(*log)
    cells = [line.split("│")[2].strip() for line in table.output.splitlines() if "│" in line]
    assert table.exit_code == 0 and "[citationneeded]" in "".join(cells).replace(" ", "")
    assert not any(sign in table.output for sign in "\x1b\x07\u202e\u2028")
    assert json.loads(tpatcher(*log, "--json").output)["example"]["text"] == asked
    assert tpatcher(*undo, id).exit_code == 0
    assert isinstance(tpatcher(*undo, "[/x]").exception, TPatcherError)


def test_an_error_with_brackets_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tpatcher", "log", "--patches", "/no[/where]\x1b[2J"])
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().err
    assert "/no[/where]\\u001b[2J" in said.replace("\n", "")


def test_a_fix_with_only_the_wrong_answer_asks_first(tmp_path: Path) -> None:
    model, fixes = saved(tmp_path / "model", "bert"), tmp_path / "fixes"
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(TEXTS))
    asked = "the capital of peru"
    before = fresh("bert").answer([asked])[0]
    fix = ["fix", model, "--patches", fixes, "--text", asked, "--wrong", before]
    fix += ["--traffic", traffic]
    out = tpatcher(*fix)  # nobody says yes
    assert out.exit_code == 1 and f"answer {asked} with" in out.output
    assert not pack.index(fixes)
    out = tpatcher(*fix, "--yes")
    assert out.exit_code == 0 and "fixed" in out.output, out.output
    now = tpatcher("answer", model, asked, "--patches", fixes).output.strip()
    assert now != before
    both = tpatcher(*fix, "--answer", now)
    assert "give --text with --answer or --wrong" in str(both.exception)
