"""What the service loads before it listens."""

from pathlib import Path

import pytest

from tests.service import served
from tpatcher.errors import BadInput
from tpatcher.example import Example
from tpatcher.service.serve import load_canaries, load_memory, serve


def test_without_tokens_it_listens_on_this_machine_only() -> None:
    with pytest.raises(BadInput, match="without tokens"):
        serve("no model is loaded before this is checked", host="0.0.0.0")


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
