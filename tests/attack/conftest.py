"""Attacks on real processes, on loopback: `pytest -m attack` runs them, and nothing else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres as pg
from tests.attack.target import Target
from tests.service import served

HERE = Path(__file__).parent
postgres = pytest.fixture(scope="session")(pg.running)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; as slow too, so that no run of the quick tests takes it in."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.attack)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny classifier as a directory, and its traffic as a file."""
    path = tmp_path_factory.mktemp("saved")
    served.save(path)
    return path


@pytest.fixture(scope="module")
def target(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A service with a token of every role, on a SQLite store of its own."""
    one = Target(saved, str(tmp_path_factory.mktemp("store") / "s.db"))
    try:
        yield one.ready()
    finally:
        one.stop()
