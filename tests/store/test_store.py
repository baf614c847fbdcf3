"""The store: what was acknowledged is there, what is damaged is named, nothing is lost."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.store.made import patch
from tpatcher.errors import Damaged, StaleHead
from tpatcher.example import Example
from tpatcher.patches.neurons import Neurons
from tpatcher.patches.pack import Base
from tpatcher.store.store import Store
from tpatcher.store.tables import PATCH


def test_a_pack_goes_out_and_comes_in(url: str, base: Base, tmp_path: Path) -> None:
    store, other = Store(url, base), Store(tmp_path / "other.db", base)
    for n in (1, 2):
        store.append(patch(n))
    store.export_pack(tmp_path / "pack")
    other.append(patch(2))
    assert other.import_pack(tmp_path / "pack", who="bob") == [2]  # the one that it had stays one
    assert sorted(p.id for p in other.live()) == sorted(p.id for p in store.live())
    store.close()
    other.close()


def test_a_patch_made_for_an_older_head_is_turned_away(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append(patch(1), parent=0)
    for late in (
        lambda: store.append(patch(2), parent=0),
        lambda: store.remove(1, parent=0),
        lambda: store.rollback(0, parent=0),
    ):
        with pytest.raises(StaleHead, match="made for entry 0, but the store is at 1"):
            late()
    assert len(store.log()) == 1
    store.close()


def test_a_key_finds_its_callers_fix_again(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append(patch(1), who="ann", key="k")
    found = store.by_key("ann", "k")
    assert found is not None and found.id == 1
    assert store.by_key("bob", "k") is None
    store.close()


def test_many_writers_at_once_each_take_their_turn(url: str, base: Base) -> None:
    stores = [Store(url, base) for _ in range(4)]
    moved = []

    def write(me: int) -> None:
        for n in range(6):
            while True:
                try:
                    stores[me].append(patch(10 * me + n), parent=stores[me].head)
                    break
                except StaleHead:
                    moved.append(me)

    threads = [threading.Thread(target=write, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].live_ids() == list(range(1, 25))
    assert len({p.id for p in stores[0].live()}) == 24
    for store in stores:
        store.close()


def test_a_flipped_byte_in_a_blob_is_found_and_named(url: str, base: Base) -> None:
    store = Store(url, base)
    for n in (1, 2, 3):
        store.append(patch(n))
    with store.writing() as connection:
        where = PATCH.c.id == 2
        blob = bytearray(connection.execute(sa.select(PATCH.c.tensors).where(where)).scalar_one())
        blob[-5] ^= 1
        connection.execute(PATCH.update().where(where).values(tensors=bytes(blob)))
    with pytest.raises(Damaged, match="fix 2 is not what was appended"):
        store.live()
    store.remove(2)  # and the way out needs none of its bytes
    assert [p.id for p in store.live()] == [patch(1).id, patch(3).id]
    store.close()


@pytest.mark.parametrize(
    "blob", [b"", b"\x00" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", b"pickle"]
)
def test_a_blob_that_is_no_patch_is_named(
    tmp_path: Path, base: Base, blob: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s.db", base)
    monkeypatch.setattr(Neurons, "to_bytes", lambda self: blob)
    store.append(patch(1))  # with a sound checksum: only reading it can tell
    with pytest.raises(Damaged, match="fix 1: "):
        store.live()
    store.close()


def test_many_are_appended_all_or_none(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append(patch(0))
    assert store.append_many((patch(n) for n in range(1, 1001)), who="ann") == [*range(2, 1002)]
    assert [p.id for p in store.live()] == [patch(n).id for n in range(1001)]
    assert store.fix(7).example == Example("question 6", "yes")

    class Unreadable(Exception):
        pass

    def broken() -> Iterator[Neurons]:
        yield patch(1)
        raise Unreadable

    with pytest.raises(Unreadable):
        store.append_many(broken())
    assert store.head == 1001
    store.close()
