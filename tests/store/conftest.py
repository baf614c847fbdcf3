"""A new store's URL, in SQLite and in PostgreSQL, and the base model that the store is for."""

import pytest

from tests import postgres as pg
from tests import zoo
from tpatcher.models.model import Model
from tpatcher.patches.pack import Base

postgres = pytest.fixture(scope="module")(pg.running)
url = pytest.fixture(params=["sqlite", "postgres"])(pg.place)


@pytest.fixture(scope="module")
def base() -> Base:
    """The base model that the store is for."""
    return Model(zoo.net("bert"), zoo.tokenizer("classify"), "classify").base
