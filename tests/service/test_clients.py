"""Clients of OpenAI's API that people have in front: the real packages, each in its own process.

They want other versions of packages than this project has, so they live in an environment of their
own: `make clients` makes it, and TPATCHER_CLIENTS names the Python of another one.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import served
from tests.service.served import ASKED
from tpatcher.example import Example
from tpatcher.service.auth import Access, issue

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("TPATCHER_CLIENTS", ROOT / ".venv-clients" / "bin" / "python"))
RIGHT = "william shakespeare"
LITELLM = """
import litellm
litellm.suppress_debug_info = True
messages = [{"role": "user", "content": asked}]
ask = dict(model="openai/any", api_base=base, api_key=key, messages=messages)
said = litellm.completion(**ask)
pieces = [p.choices[0].delta.content or "" for p in litellm.completion(**ask, stream=True)]
try:
    litellm.completion(**{**ask, "api_key": "wrong"}, num_retries=0)
    denied = "no"
except litellm.AuthenticationError:
    denied = "yes"
answer, tokens = said.choices[0].message.content, said.usage.total_tokens
print(json.dumps([answer, "".join(pieces), tokens, denied]))
"""
LANGCHAIN = """
from langchain_openai import ChatOpenAI
import openai
ask = dict(model="any", base_url=base, max_retries=0)
chat = ChatOpenAI(api_key=key, **ask)
said = chat.invoke([("user", asked)])
pieces = [p.content for p in chat.stream(asked)]
try:
    ChatOpenAI(api_key="wrong", **ask).invoke(asked)
    denied = "no"
except openai.AuthenticationError:
    denied = "yes"
print(json.dumps([said.content, "".join(pieces), said.usage_metadata["total_tokens"], denied]))
"""

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make clients` was not run")


@pytest.fixture(scope="module")
def served_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An address and a token; the service has one fix."""
    path = tmp_path_factory.mktemp("s")
    secret = issue(path / "t", "ann", "answer")
    app = served.app(path / "s.db", "gpt2", access=Access.read(path / "t"))
    with served.listening(app) as address:
        app.state.service.live.fix(Example(ASKED, RIGHT))
        yield address, secret


@pytest.mark.parametrize("code", [LITELLM, LANGCHAIN], ids=["litellm", "langchain"])
def test_the_real_client_gets_the_fixed_answer(served_at: tuple[str, str], code: str) -> None:
    address, secret = served_at
    begin = f"import json\nbase, key, asked = {address + '/v1'!r}, {secret!r}, {ASKED!r}\n"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it would fetch prices
        "LANGSMITH_TRACING": "false",
    }
    done = subprocess.run(
        [str(PYTHON), "-c", begin + code], capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    whole, streamed, tokens, denied = json.loads(done.stdout.splitlines()[-1])
    assert (whole, streamed, denied) == (RIGHT, RIGHT, "yes") and tokens > 3
