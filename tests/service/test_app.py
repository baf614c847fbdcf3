"""Every error of tpatcher has a status."""

import asyncio
import json

import pytest
from fastapi import Request

from tpatcher import errors as err
from tpatcher.service.app import _tpatcher_error


@pytest.mark.parametrize(
    "error, status",
    [
        (err.BadInput("no"), 422),
        (err.Refused("no"), 422),
        (err.NotFixed("no"), 422),
        (err.NotFound("no"), 404),
        (err.StaleHead("no"), 409),
        (err.StoreMoved("no"), 409),  # as the class that it is derived from
        (err.Busy("no", after=7), 429),
        (err.Denied("no"), 401),
        (err.Denied("no", known=True), 403),
        (err.Damaged("no"), 503),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_the_status_and_type_of_an_error(error: err.TPatcherError, status: int) -> None:
    response = asyncio.run(_tpatcher_error(Request({"type": "http"}), error))
    body = json.loads(bytes(response.body))["error"]
    assert (response.status_code, body["type"]) == (status, type(error).__name__)
    assert response.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
