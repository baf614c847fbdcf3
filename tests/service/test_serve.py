"""What the service loads before it listens."""

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.service import served
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.service.connections import BoundedProtocol
from tpatcher.service.live import Deployment
from tpatcher.service.serve import build, load_canaries, load_memory, serve

MODULE = sys.modules["tpatcher.service.serve"]  # the package has a function of that name


def test_without_tokens_it_listens_on_this_machine_only() -> None:
    with pytest.raises(BadInput, match="without tokens"):
        serve("no model is loaded before this is checked", host="0.0.0.0")


STUCK = """
import sys, time
from pathlib import Path
from tpatcher.editors import TPatcher
from tpatcher.service import serve
def edit(*args, **more):  # hangs, and looks at no deadline
    Path(sys.argv[5]).touch()
    time.sleep(3600)
TPatcher.edit = edit
serve(sys.argv[1], port=int(sys.argv[2]), store=sys.argv[3], traffic=sys.argv[4], drain=1)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_while_an_edit_hangs(tmp_path: Path, how: int) -> None:
    served.save(tmp_path)
    one = served.Process(tmp_path, str(tmp_path / "s.db"), STUCK, str(tmp_path / "began"))
    try:
        one.ready()
        body: dict[str, object] = {"text": served.ASKED, "answer": served.wrong(one.ask())}
        ask = threading.Thread(target=lambda: suppressed(one, body), daemon=True)
        ask.start()
        served.until((tmp_path / "began").exists)
        one.process.send_signal(how)
        assert one.process.wait(60) in (0, -how)
    finally:
        one.end()


def suppressed(one: served.Process, body: dict[str, object]) -> None:
    """A fix that will not be answered."""
    with suppress(httpx.HTTPError):
        one.post("fixes", body)


def test_the_memory_is_cached_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, _ = served.fitted()
    (tmp_path / "texts.txt").write_text("\n".join(served.texts()))
    first = load_memory(model, tmp_path / "texts.txt")
    cached = next((tmp_path / "cache" / "tpatcher").iterdir())
    assert load_memory(model, tmp_path / "texts.txt").queries.equal(first.queries)
    assert load_memory(model, cached).queries.equal(first.queries)
    (cached / "queries.npy").write_bytes(b"nonsense")
    assert load_memory(model, tmp_path / "texts.txt").queries.equal(first.queries)


def test_canaries_are_the_users_own_or_a_sample_of_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "canaries.jsonl"
    file.write_text('{"text": "is it red ?", "answer": "yes"}\n')
    model, editor = served.fitted()
    assert editor.memory is not None
    assert load_canaries(model, file, editor.memory) == [Example("is it red ?", "yes")]
    assert len(load_canaries(model, None, editor.memory)) == 200


def test_nobody_can_give_themselves_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(MODULE, "load", lambda *args, **more: None)
    monkeypatch.setattr(MODULE, "build", lambda *args, **more: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    monkeypatch.setattr("logging.basicConfig", lambda **more: None)
    monkeypatch.setattr("uvicorn.run", lambda app, **more: given.update(more))
    serve("model", store=tmp_path / "s.db")
    assert given["proxy_headers"] is False and given["http"] is BoundedProtocol


def test_the_users_own_canaries_bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "texts.txt").write_text("\n".join(served.texts()))
    (tmp_path / "canaries.jsonl").write_text('{"text": "is it red ?", "answer": "yes"}\n')
    made = list[Deployment]()
    monkeypatch.setattr(MODULE, "create_app", lambda deployment, **more: made.append(deployment))
    model = served.fitted()[0]
    for file in (None, tmp_path / "canaries.jsonl"):
        build(model, tmp_path / "s.db", traffic=tmp_path / "texts.txt", canaries=file)
    assert [one.guard.binding for one in made] == [set(), {"is it red ?"}]
    for one in made:
        one.store.close()
