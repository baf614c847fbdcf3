"""Whatever is sent, the service answers; it never fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import BaseModel, ValidationError
from schemathesis.checks import not_a_server_error

from tests.service import served
from tpatcher.service import openai, schemas
from tpatcher.service.limits import Limits


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    url = tmp_path_factory.mktemp("s") / "s.db"
    app = served.app(url, request.param, limits=Limits(rate=1e6, burst=10**6))
    with served.listening(app) as found:
        yield found


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    """One client for all: to make one takes longer than to ask with it."""
    with httpx.Client(timeout=30) as found:
        yield found


def test_no_request_makes_it_fail(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    tried = 0
    for operation in schema.get_all_operations():

        @settings(
            max_examples=15, deadline=None, database=None, derandomize=True,
            phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=[not_a_server_error])

        given(case=operation.ok().as_strategy())(check)()
        tried += 1
    assert tried >= 17


def lists(schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every list in a schema, and in those that it refers to."""
    if "$ref" in schema:
        schema = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "array":
        yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    for one in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from lists(one, whole)


def test_every_list_in_a_request_has_a_length(tmp_path: Path) -> None:
    whole = served.app(tmp_path / "s.db").openapi()
    routes = [route for path in whole["paths"].values() for route in path.values()]
    bodies = [r["requestBody"]["content"]["application/json"]["schema"] for r in routes
              if "requestBody" in r]  # fmt: skip
    found = [one for body in bodies for one in lists(body, whole)]
    assert len(found) >= 8
    assert [one for one in found if one.get("maxItems", 1000) > 64] == []


@pytest.mark.parametrize(
    "kind, sent",
    [
        (schemas.AnswerRequest, {"texts": [1] * 100_000}),
        (schemas.NewFix, {"text": "a", "answer": "b", "also": [1] * 100_000}),
        (schemas.NewFix, {"text": "a", "answer": "b", "rephrasings": [1] * 100_000}),
        (openai.ChatRequest, {"messages": [1] * 100_000}),
        (openai.ChatRequest, {"messages": [{"role": "user", "content": [1] * 100_000}]}),
        (openai.CompletionRequest, {"prompt": [1] * 100_000}),
        (openai.CompletionRequest, {"prompt": "a", "stop": [1] * 100_000}),
        (schemas.AnswerRequest, {str(n): 1 for n in range(100_000)}),
    ],
)
def test_a_long_list_is_one_error_and_not_one_an_item(
    kind: type[BaseModel], sent: dict[str, object]
) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(sent)
    assert refused.value.error_count() <= 2  # of a text or a list: neither


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'{"text": "\\ud800"}', b'{"text": "\\u0000"}', b"\xff\xfe",
    b'{"text": 1e999}', b'{"text": {"text": "x"}}', b'{"texts": [[]]}', b"[" * 5000,
    b'{"text": "<script>alert(1)</script>\\r\\n\\u202e"}', b'{"text": "' + b"a" * 100_000 + b'"}',
])  # fmt: skip
def test_no_body_makes_it_fail(address: str, http: httpx.Client, body: bytes) -> None:
    for path in ("answer", "fixes", "reports", "rollback", "chat/completions", "completions"):
        for kind in ("application/json", "text/plain"):
            sent = {"Content-Type": kind}
            found = http.post(f"{address}/v1/{path}", content=body, headers=sent)
            assert found.status_code < 500, (path, body[:50], found.text)
            if found.status_code >= 400:
                assert set(found.json()) == {"error"}
