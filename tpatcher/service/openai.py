"""The same answers in OpenAI's shape, so that existing clients work.

Decoding is greedy, because that is what a fix is certified for: temperature and the like are
accepted and change nothing.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from tpatcher.errors import BadInput
from tpatcher.service.answering import Said
from tpatcher.service.deps import Answerer, Service, State
from tpatcher.service.schemas import errors

OPENAI = APIRouter(prefix="/v1")
Shape = Callable[[str, str | None], dict[str, Any]]


class Options(BaseModel):
    """What both routes understand; anything else that a client sends is passed over."""

    model_config = ConfigDict(extra="ignore")
    model: str = ""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    n: Literal[1] = 1

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def cut(self, service: State, said: Said) -> tuple[str, str]:
        """The answer within the asked length, and why it ends."""
        task: Any = service.desk.base.task
        ids = said.ids[: self.limit]
        text = task.decode([ids])[0] if len(ids) < len(said.ids) else said.text
        reason = "stop" if ids and ids[-1] in task.ends else "length"
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        found = [at for s in stops if s and (at := text.find(s)) >= 0]
        return (text[: min(found)], "stop") if found else (text, reason)


class Part(BaseModel):
    """A piece of a message; only text is understood."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["text"] = "text"
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(p.text for p in parts)


class Chat(Options):
    """A conversation to go on with."""

    messages: Annotated[list[Message], Field(min_length=1)]


class Completion(Options):
    """A text to go on from."""

    prompt: str | list[str]


@OPENAI.get("/models", responses=errors())
def models(service: Service, caller: Answerer) -> dict[str, Any]:
    """The one model there is."""
    one = {"id": service.desk.base.name, "object": "model", "created": 0, "owned_by": "tpatcher"}
    return {"object": "list", "data": [one]}


@OPENAI.post("/chat/completions", response_model=None, responses=errors())
async def chat(
    body: Chat, service: Service, caller: Answerer
) -> StreamingResponse | dict[str, Any]:
    """The next turn of a conversation."""
    text, prompt = conversation(service, body.messages)

    def delta(text: str, reason: str | None) -> dict[str, Any]:
        told = {"role": "assistant", "content": text} if text or reason is None else {}
        return {"index": 0, "delta": told, "finish_reason": reason}

    if body.stream:
        return streamed(service, body, [(text, prompt)], "chat.completion.chunk", delta)
    said, fired = await ask(service, text, prompt)
    content, reason = body.cut(service, said)
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return about(service, "chat.completion") | {
        "choices": [choice], "usage": usage(service, [prompt], [said]), "fixes": sorted(fired),
    }  # fmt: skip


@OPENAI.post("/completions", response_model=None, responses=errors())
async def completions(
    body: Completion, service: Service, caller: Answerer
) -> StreamingResponse | dict[str, Any]:
    """What comes after a text, as it stands: no chat template is put around it."""
    generative(service)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    service.limits.check(prompts)
    pairs = [(p, service.fitting(p)) for p in prompts]

    def piece(text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}

    if body.stream:
        return streamed(service, body, pairs, "text_completion", piece)
    found = await asyncio.gather(*(ask(service, *pair) for pair in pairs))
    choices = [piece(*body.cut(service, said)) | {"index": i} for i, (said, _) in enumerate(found)]
    fixes = sorted({fix for _, fired in found for fix in fired})
    return about(service, "text_completion") | {
        "choices": choices, "usage": usage(service, prompts, [s for s, _ in found]), "fixes": fixes,
    }  # fmt: skip


def conversation(service: State, messages: list[Message]) -> tuple[str, str]:
    """The question, as a report would name it, and the prompt that the model is given."""
    generative(service)
    base = service.desk.base
    asked = [m.text for m in messages if m.role == "user"]
    if not asked:
        raise BadInput("a conversation needs a message of the role user")
    service.limits.check([m.text for m in messages if m.text] + asked)
    if base.task.name != "causal" or len(messages) == 1:
        return asked[-1], service.prompt(asked[-1])
    if not base.tokenizer.chat_template:
        return asked[-1], service.fitting("\n".join(m.text for m in messages))
    turns = [{"role": m.role.replace("developer", "system"), "content": m.text} for m in messages]
    try:
        prompt = base.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates are programs: some refuse a system message, say
        raise BadInput(f"the model's chat template refuses this: {error}") from error
    return asked[-1], service.fitting(str(prompt))


def generative(service: State) -> None:
    if service.desk.base.task.name == "classify":
        raise BadInput("this model classifies and does not write; use /v1/answer")


async def ask(service: State, text: str, prompt: str) -> tuple[Said, dict[int, float]]:
    said, fired = await asyncio.wrap_future(service.batcher.submit(prompt))
    service.heard(text, said, fired)
    return said, fired


def about(service: State, kind: str) -> dict[str, Any]:
    name = f"cmpl-{uuid.uuid4().hex}"
    return {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": service.desk.base.name,
    }


def usage(service: State, prompts: list[str], said: list[Said]) -> dict[str, int]:
    task = service.desk.base.task
    read = sum(len(task.tokenize(p, verbose=False).input_ids) for p in prompts)
    wrote = sum(len(s.ids) for s in said)
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def streamed(
    service: State, body: Options, pairs: list[tuple[str, str]], kind: str, shape: Shape
) -> StreamingResponse:
    """The answer as server-sent events; the last of them says which fixes fired."""
    if len(pairs) != 1:
        raise BadInput("only one prompt can be streamed")
    (text, prompt), loop = pairs[0], asyncio.get_running_loop()
    pieces: asyncio.Queue[int | None] = asyncio.Queue()
    gone = False

    def hear(token: int) -> bool:
        loop.call_soon_threadsafe(pieces.put_nowait, token)
        return not gone

    now = service.desk.now
    work: Future[Said] = service.streams.submit(now.watch.stream, prompt, hear)
    work.add_done_callback(lambda _: loop.call_soon_threadsafe(pieces.put_nowait, None))

    async def events() -> AsyncIterator[str]:
        nonlocal gone
        head, sent, ids = about(service, kind), "", list[int]()
        none = Said([], "", {}, None)  # type: ignore[arg-type]
        try:
            while (token := await pieces.get()) is not None:
                ids.append(token)
                if body.limit is not None and len(ids) > body.limit:
                    continue
                words = service.desk.base.task.decode([ids])[0]
                so_far, _ = body.cut(service, Said(ids, words, none.fired, none.queries))
                # a character may still be incomplete, and a stop string half there
                if so_far.startswith(sent) and not so_far.endswith("�") and not body.stop:
                    if so_far != sent:
                        yield event(head, shape(so_far[len(sent) :], None))
                    sent = so_far
            said = work.result()
            whole, reason = body.cut(service, said)
            if whole.startswith(sent) and whole != sent:
                yield event(head, shape(whole[len(sent) :], None))
            fired = {now.ids[i]: r for i, r in said.fired.items()}
            service.heard(text, said, fired)
            yield event({**head, "fixes": sorted(fired)}, shape("", reason))
            yield "data: [DONE]\n\n"
        finally:
            gone = True

    return StreamingResponse(events(), media_type="text/event-stream")


def event(head: dict[str, Any], choice: dict[str, Any]) -> str:
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
