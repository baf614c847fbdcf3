"""Where a store goes on: moves are followed, undone and checked."""

from pathlib import Path

import pytest

from tests.store.made import patch
from tpatcher.errors import Damaged, NotFound, StoreMoved
from tpatcher.example import Example
from tpatcher.patches.pack import Base
from tpatcher.store.location import (
    Successor,
    follow,
    learned,
    record_learned,
    record_move,
    successor,
    undo_move,
    with_password,
    without_password,
)
from tpatcher.store.store import Store
from tpatcher.store.tables import MOVE


def test_a_store_that_has_moved_takes_no_change_until_the_move_is_undone(
    url: str, base: Base
) -> None:
    store, to = Store(url, base), Successor("new", "new.db")
    store.append(patch(1))
    assert (successor(store), record_move(store, to, parent=1), successor(store)) == (None, 2, to)
    assert follow("old", url) == ("new", "new.db")
    for change in (
        lambda: store.append(patch(2)),
        lambda: store.remove(1),
        lambda: store.rollback(0),
        lambda: record_move(store, to, parent=2),
    ):
        with pytest.raises(StoreMoved, match=r"its fixes are in 'new', kept on in 'new\.db'"):
            change()
    assert undo_move(store) == 3
    assert (follow("old", url), store.live_ids()) == (("old", url), [1])
    with pytest.raises(NotFound, match="has not moved"):
        undo_move(store)
    store.close()


def test_what_the_base_has_learned_is_kept_in_order(url: str, base: Base) -> None:
    store, examples = Store(url, base), [Example("a", "yes", also=("yep",)), Example("b", "no")]
    record_learned(store, [])
    record_learned(store, examples)
    assert (learned(store), store.head) == (examples, 0)
    store.close()


def test_a_record_that_was_changed_is_found(tmp_path: Path, base: Base) -> None:
    store = Store(tmp_path / "s.db", base)
    record_move(store, Successor("here", "there"), parent=0)
    with store.writing() as connection:
        connection.execute(MOVE.update().values(model="elsewhere"))
    with pytest.raises(Damaged, match="the move, is not what was written"):
        follow("old", tmp_path / "s.db")
    store.close()


def test_moves_in_a_circle_are_found(
    tmp_path: Path, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s.db", base)
    record_move(store, Successor("here", str(tmp_path / "s.db")), parent=0)
    monkeypatch.setattr("tpatcher.store.location.MAX_MOVES", 5)
    with pytest.raises(Damaged, match="in a circle"):
        follow("old", tmp_path / "s.db")
    store.close()


def test_a_password_is_not_written_down() -> None:
    mine = "postgresql+psycopg://ann:secret@host/fixes"
    assert without_password(mine) == "postgresql+psycopg://ann@host/fixes"
    assert with_password("postgresql+psycopg://ann@host/new", mine).endswith(
        "//ann:secret@host/new"
    )
    assert without_password("fixes.db") == with_password("fixes.db", mine) == "fixes.db"
