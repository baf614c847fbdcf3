"""The built-in facts, replaced by a few for a test."""

import pytest

from tests.checkpoints.few_facts import CLAIMS, QUESTIONS, split_of
from tpatcher.checkpoints import builtin


@pytest.fixture
def few_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "builtin_fc", lambda: split_of(CLAIMS))
    monkeypatch.setattr(builtin, "builtin_qa", lambda: split_of(QUESTIONS))
