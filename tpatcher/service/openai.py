"""The same answers in OpenAI's shape, so that existing clients work.

Decoding is greedy, because that is what a fix is certified for: temperature and the like are
accepted and change nothing.
"""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from transformers import AsyncTextIteratorStreamer

from tpatcher.errors import BadInput, Busy
from tpatcher.service.answering import Reply
from tpatcher.service.deps import Answerer, Service, ServiceDep
from tpatcher.service.schemas import MAX_ITEMS, errors

ROUTER = APIRouter(prefix="/v1")
Texts = Annotated[list[str], Field(max_length=MAX_ITEMS)]
Asked = Future[tuple[Reply, dict[int, float]]]
MakeChoice = Callable[[str, str | None], dict[str, Any]]  # of a piece of text and why it ends


class Options(BaseModel):
    """The options of both routes; anything else that a client sends is ignored."""

    model_config = ConfigDict(extra="ignore")
    model: str = ""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Texts | None = None
    stream: bool = False
    n: Literal[1] = 1

    @property
    def limit(self) -> int | None:
        """How many tokens the answer may have."""
        return self.max_completion_tokens or self.max_tokens

    def cut(self, service: Service, reply: Reply) -> tuple[str, str]:
        """The answer up to the limit or the first stop string, and why it ends."""
        task: Any = service.task
        ids = reply.ids[: self.limit]
        text = task.decode([ids])[0] if len(ids) < len(reply.ids) else reply.text
        reason = "stop" if ids and ids[-1] in task.ends else "length"
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        ends = [end for s in stops if s and (end := text.find(s)) >= 0]
        return (text[: min(ends)], "stop") if ends else (text, reason)


class Part(BaseModel):
    """A piece of a message; only text is understood."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["text"] = "text"
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(max_length=MAX_ITEMS)]

    @property
    def text(self) -> str:
        """The content without its parts."""
        parts = self.content
        return parts if isinstance(parts, str) else "".join(p.text for p in parts)


class ChatRequest(Options):
    """A conversation to continue."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_ITEMS)]


class CompletionRequest(Options):
    """One or several texts to continue."""

    prompt: str | Texts


@ROUTER.get("/models", responses=errors())
async def models(service: ServiceDep, caller: Answerer) -> dict[str, Any]:
    """The model that is served."""
    name = service.live.base_model.name
    model = {"id": name, "object": "model", "created": 0, "owned_by": "tpatcher"}
    return {"object": "list", "data": [model]}


@ROUTER.post("/chat/completions", response_model=None, responses=errors())
async def chat(
    body: ChatRequest, service: ServiceDep, caller: Answerer
) -> StreamingResponse | dict[str, Any]:
    """The next turn of a conversation."""
    _check_generates(service)
    question, prompt = _conversation(service, body.messages)
    service.check_length([prompt])
    if body.stream:

        def piece(text: str, reason: str | None) -> dict[str, Any]:
            delta = {"role": "assistant", "content": text} if text or reason is None else {}
            return {"index": 0, "delta": delta, "finish_reason": reason}

        return _stream(service, body, question, prompt, "chat.completion.chunk", piece)
    reply, fired = await _ask(service, question, service.batcher.submit(prompt))
    content, reason = body.cut(service, reply)
    message = {"role": "assistant", "content": content}
    return {
        **_header(service, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(service, [prompt], [reply]),
        "fixes": sorted(fired),
    }


@ROUTER.post("/completions", response_model=None, responses=errors())
async def completions(
    body: CompletionRequest, service: ServiceDep, caller: Answerer
) -> StreamingResponse | dict[str, Any]:
    """What comes after a text, to which no chat template is applied."""
    _check_generates(service)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    service.limits.check(prompts)
    service.check_length(prompts)

    def choice(text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}

    if body.stream:
        if len(prompts) != 1:
            raise BadInput(f"{len(prompts)} prompts were given, but only one can be streamed")
        return _stream(service, body, prompts[0], prompts[0], "text_completion", choice)
    waiting = service.batcher.submit_all(prompts)
    asked = await asyncio.gather(*map(partial(_ask, service), prompts, waiting))
    replies = [reply for reply, _ in asked]
    return {
        **_header(service, "text_completion"),
        "choices": [
            {**choice(*body.cut(service, reply)), "index": i} for i, reply in enumerate(replies)
        ],
        "usage": _usage(service, prompts, replies),
        "fixes": sorted({fix for _, fired in asked for fix in fired}),
    }


def _check_generates(service: Service) -> None:
    if not service.task.generates:
        raise BadInput("this model classifies and does not write; use /v1/answer")


def _conversation(service: Service, messages: list[Message]) -> tuple[str, str]:
    """The last question, as a report would name it, and the prompt for the model."""
    questions = [m.text for m in messages if m.role == "user"]
    if not questions:
        raise BadInput("a conversation needs a message of the role user")
    question = questions[-1]
    service.limits.check([m.text for m in messages if m.text] + questions)
    if service.task.name != "causal" or len(messages) == 1:
        return question, service.prompt(question)
    tokenizer = service.task.tokenizer
    if not tokenizer.chat_template:
        return question, "\n".join(m.text for m in messages)
    turns = [{"role": m.role.replace("developer", "system"), "content": m.text} for m in messages]
    try:
        prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs: some refuse a system message
        raise BadInput(f"the model's chat template refuses this: {error}") from error
    return question, str(prompt)


async def _ask(service: Service, question: str, waiting: Asked) -> tuple[Reply, dict[int, float]]:
    """The reply that is waited for, and the fixes that fired."""
    reply, fired = await asyncio.wrap_future(waiting)
    service.remember(question, reply, fired)
    return reply, fired


def _header(service: Service, kind: str) -> dict[str, Any]:
    """The fields that every response and every event begins with."""
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": service.live.base_model.name,
    }


def _usage(service: Service, prompts: list[str], replies: list[Reply]) -> dict[str, int]:
    read = sum(len(service.task.tokenize(p, verbose=False).input_ids) for p in prompts)
    wrote = sum(len(reply.ids) for reply in replies)
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _stream(
    service: Service, body: Options, question: str, prompt: str, kind: str, choice: MakeChoice
) -> StreamingResponse:
    """The answer as server-sent events, word by word; the last one says which fixes fired."""
    now, client_gone = service.live.now, threading.Event()
    streamer = AsyncTextIteratorStreamer(
        service.task.tokenizer, skip_prompt=True, skip_special_tokens=True
    )

    def should_stop(tokens: int) -> bool:
        return client_gone.is_set() or tokens == body.limit

    if not service.free_streams.acquire(blocking=False):
        raise Busy(f"{service.limits.streams} answers are being streamed already")
    work = service.streams.submit(now.traced.stream, prompt, streamer, should_stop)
    work.add_done_callback(lambda _: service.free_streams.release())
    # after an error too, or the client would wait for ever
    work.add_done_callback(lambda _: streamer.on_finalized_text("", stream_end=True))

    async def events() -> AsyncIterator[str]:
        header, text, sent = _header(service, kind), "", ""
        try:
            async for piece in streamer:
                text += piece
                ready = "" if body.stop else text.strip()  # half a stop string may be there
                if len(ready) > len(sent):
                    yield _event(header, choice(ready[len(sent) :], None))
                    sent = ready
            reply = await asyncio.wrap_future(work)
            whole, reason = body.cut(service, reply)
            if whole.startswith(sent) and whole != sent:
                yield _event(header, choice(whole[len(sent) :], None))
            fired = now.fired(reply)
            service.remember(question, reply, fired)
            yield _event({**header, "fixes": sorted(fired)}, choice("", reason))
            yield "data: [DONE]\n\n"
        finally:
            client_gone.set()

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(header: dict[str, Any], choice: dict[str, Any]) -> str:
    return f"data: {json.dumps({**header, 'choices': [choice]})}\n\n"
