"""OpenAI's shape, with OpenAI's own client."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

from tests.service import served
from tests.service.served import ASKED
from tpatcher.models.model import Model
from tpatcher.service.answering import Reply, TracedModel
from tpatcher.service.limits import Limits

RIGHT = "william shakespeare"


@pytest.fixture(scope="module", params=["gpt2", "bart"])
def served_at(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[openai.OpenAI, Model]]:
    url = tmp_path_factory.mktemp("s") / "s.db"
    with (
        served.listening(served.app(url, request.param)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        client.post("/fixes", body={"text": ASKED, "answer": RIGHT}, cast_to=object)
        yield client, served.fitted(request.param)[0]


Served = tuple[openai.OpenAI, Model]


def test_a_chat_is_answered_with_the_fix(served_at: Served) -> None:
    client, model = served_at
    found = client.chat.completions.create(
        model=model.name, messages=[{"role": "user", "content": ASKED}], temperature=0.7
    )
    assert found.choices[0].message.content == RIGHT
    assert found.choices[0].finish_reason == "stop"
    assert found.model_extra == {"fixes": [1]}
    assert found.usage is not None and found.usage.completion_tokens >= 3


@pytest.mark.parametrize("text", [ASKED, "the river is green", "where is paris ?"])
def test_a_stream_says_the_same_piece_by_piece(served_at: Served, text: str) -> None:
    client, model = served_at
    whole = client.completions.create(model=model.name, prompt=text)
    pieces = list(client.completions.create(model=model.name, prompt=text, stream=True))
    assert "".join(p.choices[0].text for p in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert (pieces[-1].model_extra or {})["fixes"] == (whole.model_extra or {})["fixes"]
    if text == ASKED:
        assert len(pieces) == 3  # two words and the end


def test_a_chat_is_streamed_too(served_at: Served) -> None:
    client, model = served_at
    pieces = list(client.chat.completions.create(
        model=model.name, messages=[{"role": "user", "content": ASKED}], stream=True,
    ))  # fmt: skip
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == RIGHT


def test_length_and_stop_are_kept(served_at: Served) -> None:
    client, model = served_at
    short = client.completions.create(model=model.name, prompt=ASKED, max_tokens=2)
    assert short.usage is not None and short.choices[0].text in ("william", RIGHT)
    cut = client.completions.create(model=model.name, prompt=ASKED, stop=[" shake"])
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("william", "stop")


@pytest.mark.parametrize("options", [{"max_tokens": 1}, {"max_tokens": 2}, {"stop": [" shake"]}])
def test_length_and_stop_are_kept_in_a_stream(served_at: Served, options: Any) -> None:
    client, model = served_at
    whole = client.completions.create(model=model.name, prompt=ASKED, **options)
    pieces = list(client.completions.create(model=model.name, prompt=ASKED, stream=True, **options))
    assert "".join(p.choices[0].text for p in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_several_prompts_and_several_turns(served_at: Served) -> None:
    client, model = served_at
    texts = [ASKED, "the river is green"]
    found = client.completions.create(model=model.name, prompt=texts)
    assert [c.index for c in found.choices] == [0, 1]
    assert found.choices[0].text == RIGHT
    alone = client.completions.create(model=model.name, prompt=texts[1])
    assert found.choices[1].text == alone.choices[0].text
    talk = client.chat.completions.create(model=model.name, messages=[
        {"role": "system", "content": "yes"}, {"role": "user", "content": "the cat"},
        {"role": "assistant", "content": "no"}, {"role": "user", "content": ASKED},
    ])  # fmt: skip
    asked = ASKED if model.task.name == "seq2seq" else f"yes\nthe cat\nno\n{ASKED}"
    same = client.completions.create(model=model.name, prompt=asked)
    assert talk.choices[0].message.content == same.choices[0].text


def test_mistakes_are_the_clients_errors(served_at: Served) -> None:
    client, model = served_at
    with pytest.raises(openai.UnprocessableEntityError, match="role user"):
        client.chat.completions.create(
            model=model.name, messages=[{"role": "system", "content": "be kind"}]
        )
    with pytest.raises(openai.UnprocessableEntityError):
        client.completions.create(model=model.name, prompt=ASKED, n=2)
    assert [m.id for m in client.models.list()] == [model.name]


def test_generation_stops_when_the_client_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def stream(
        self: TracedModel, prompt: str, streamer: Any, should_stop: Callable[[int], bool]
    ) -> Reply:
        streamer.on_finalized_text("a word ")
        served.until(lambda: should_stop(1))
        stopped.set()
        return Reply([], "", {}, torch.zeros(0, 1))

    monkeypatch.setattr(TracedModel, "stream", stream)
    with served.listening(served.app(tmp_path / "s.db", "gpt2")) as address:
        body = {"prompt": ASKED, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=body) as response:
            assert "a word" in next(response.iter_lines())
        assert stopped.wait(60)


def test_a_stream_ends_when_generation_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TracedModel, *args: object) -> Reply:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(TracedModel, "stream", fail)
    with served.client(tmp_path / "s.db", "gpt2") as client:
        found = client.post("/v1/completions", json={"prompt": ASKED, "stream": True})
        assert "[DONE]" not in found.text


def test_a_classifier_does_not_chat(tmp_path: Path) -> None:
    with served.client(tmp_path / "s.db") as client:
        body = {"messages": [{"role": "user", "content": ASKED}]}
        found = client.post("/v1/chat/completions", json=body)
        assert found.status_code == 422 and "use /v1/answer" in found.text


@pytest.mark.parametrize("words", [50, 57, 63, 64, 65])
def test_a_prompt_that_fills_the_context_is_answered_or_refused(tmp_path: Path, words: int) -> None:
    text = " ".join(["rome"] * words)
    turns = [{"role": "user", "content": text}]
    with served.client(tmp_path / "s.db", "gpt2") as client:
        for path, body in (
            ("answer", {"text": text}),
            ("completions", {"model": "m", "prompt": text}),
            ("completions", {"model": "m", "prompt": text, "stream": True}),
            ("chat/completions", {"model": "m", "messages": turns}),
        ):
            found = client.post(f"/v1/{path}", json=body)
            assert found.status_code == (200 if words <= 64 else 422), (path, found.text)
            assert '"error"' not in found.text or words > 64
        made = client.post("/v1/fixes", json={"text": text, "answer": "paris lima"})
        assert made.status_code == (201 if words < 63 else 422), made.text
        if words in (63, 64):
            assert "context" in made.json()["error"]["message"]


def test_only_so_many_answers_are_streamed_at_once(tmp_path: Path) -> None:
    body = {"prompt": ASKED, "stream": True}
    for limit, statuses in ((0, [429]), (1, [200, 200, 200])):
        one = served.client(tmp_path / f"{limit}.db", "gpt2", limits=Limits(streams=limit))
        with one as client:
            for status in statuses:
                assert client.post("/v1/completions", json=body).status_code == status
