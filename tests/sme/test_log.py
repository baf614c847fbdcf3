"""The steps of a run on disk: a killed run goes on, and what is damaged is named."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tpatcher as tp
from tests.helpers import TEXTS, fresh, stream_of
from tpatcher import sme
from tpatcher.errors import BadInput, Damaged

CHILD = """
import sys
from pathlib import Path
from tests.sme.test_log import small_run
for number, step in enumerate(small_run(Path(sys.argv[1])), 1):
    print(step.index, flush=True)
    if number == 3:
        sys.stdin.read()  # the kill comes first, on a fast machine too
"""


def small_run(out: Path) -> Any:
    model = fresh("bart")
    editor = tp.TPatcher().fit(model, TEXTS[:20])
    retain = {"train": [tp.Example(t, a) for t, a in zip(TEXTS, model.answer(TEXTS), strict=True)]}
    return sme.run(model, editor, stream_of(model), retain, every=2, out=out)


def untimed(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "steps.jsonl").read_text().splitlines()
    measured = ("seconds", "megabytes")
    return [{k: v for k, v in json.loads(line).items() if k not in measured} for line in lines]


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    list(small_run(whole))
    assert len(untimed(whole)) > 4
    killed = tmp_path / "killed"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(killed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    for _ in range(2):
        child.stdout.readline()
    time.sleep(Random().random() * 0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    written = (killed / "steps.jsonl").read_bytes().count(b"\n")
    assert 2 < written < len(untimed(whole))
    with (killed / "steps.jsonl").open("a") as file:
        file.write('{"index": 7, "te')  # and a line that was only half written
    list(small_run(killed))
    assert untimed(killed) == untimed(whole)
    header, steps = sme.read(killed)
    assert header["N"] >= len(steps)
    assert sme.score(steps).SR == 1.0


def test_a_log_of_another_run_is_refused(tmp_path: Path) -> None:
    list(small_run(tmp_path))
    model = fresh("bart")
    with pytest.raises(BadInput, match="another run"):
        list(
            sme.run(model, tp.TPatcher().fit(model, TEXTS[:20]), stream_of(model)[:2], out=tmp_path)
        )


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    list(small_run(tmp_path))
    _, steps = sme.read(tmp_path)
    patch = tmp_path / "patches" / f"{steps[0].index}.safetensors"
    kept = patch.read_bytes()
    for content in (b"", kept[:50], None):
        patch.unlink() if content is None else patch.write_bytes(content)
        with pytest.raises(Damaged, match=patch.name):
            list(small_run(tmp_path))
    patch.write_bytes(kept)
    log = tmp_path / "steps.jsonl"
    lines = log.read_bytes().split(b"\n")
    for garbage in (b"\xff\x00", b"{}", b"[1]", b'{"index": 3}', b'{"retained": {"test": 1}}'):
        log.write_bytes(b"\n".join([lines[0], garbage, *lines[2:]]))
        with pytest.raises(Damaged, match=r"steps\.jsonl:2"):
            list(small_run(tmp_path))


def test_a_text_may_hold_what_unicode_calls_a_line_break(tmp_path: Path) -> None:
    log = sme.Log(tmp_path)
    log.begin({"N": 1})
    names = {f.name for f in fields(sme.Step)}
    text = "one\u2028two\u0085three\x0bfour"
    known = {"index": 0, "text": text, "retained": {}, "patch": None}
    step = sme.Step(**{name: known.get(name, 0) for name in names})  # type: ignore[arg-type]
    log.write(step, None)
    assert [one.text for one in sme.read(tmp_path)[1]] == [text]
    assert [one.text for one in sme.Log(tmp_path).begin({"N": 1})] == [text]
