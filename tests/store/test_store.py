"""The store: what was acknowledged is there, what is damaged is named, nothing is lost."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.store.made import patch, spoil
from tpatcher.errors import Damaged, NotFound, StaleHead
from tpatcher.example import Example
from tpatcher.patches.neurons import Neurons
from tpatcher.patches.pack import Base
from tpatcher.store.store import Store
from tpatcher.store.tables import ENTRY, PATCH


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
    spoil(store, 2)
    with pytest.raises(Damaged, match="fix 2 is not what was appended"):
        store.live()
    store.remove(2)  # and the way out needs none of its bytes
    assert [p.id for p in store.live()] == [patch(1).id, patch(3).id]
    store.close()


@pytest.mark.parametrize(
    "how, why",
    [
        (PATCH.update().values(tensors=b"nothing"), "fix 2 is not what was appended"),
        (PATCH.update().values(example="{"), "fix 2 is not what was appended"),
        (PATCH.update().values(checksum="x"), "entry 2 of the log is not what was written"),
        (PATCH.delete(), "entry 2 of the log is not what was written"),
    ],
    ids=["tensors", "example", "checksum", "row"],
)
def test_one_damaged_fix_is_left_out_and_can_be_removed(
    url: str, base: Base, how: sa.Update | sa.Delete, why: str
) -> None:
    store = Store(url, base)
    for n in range(1, 8):
        store.append(patch(n))
    with store.writing() as connection:
        connection.execute(how.where(PATCH.c.id == 2))
    assert list(store.verify()) == [2] and why in store.verify()[2]
    in_log: dict[int, str] = {}
    ids = store.live_ids(damaged=in_log)
    found, damaged = store.readable(ids)
    assert ids == [*range(1, 8)] and set(damaged | in_log) == {2}
    assert [found[i].id for i in (1, 3, 7)] == [patch(i).id for i in (1, 3, 7)]
    assert {1, 3, 4, 5, 6, 7} <= {f.id for f in store.readable_fixes(ids)[0]}
    assert store.remove(2) == 8
    assert store.live_ids(damaged={}) == [1, 3, 4, 5, 6, 7]
    store.close()


def test_a_text_that_cannot_be_decoded_is_damage_and_not_a_failure(
    tmp_path: Path, base: Base
) -> None:
    store = Store(tmp_path / "s.db", base)
    for n in (1, 2, 3):
        store.append(patch(n))
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE patch SET example = CAST(x'ff' AS TEXT) WHERE id = 2")
    assert list(store.verify()) == [2]
    assert [f.id for f in store.readable_fixes([1, 2, 3])[0]] == [1, 3]
    store.close()


def test_a_damaged_entry_that_is_no_fix_is_never_passed_over(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append(patch(1))
    store.remove(1)
    with store.writing() as connection:
        connection.execute(ENTRY.update().where(ENTRY.c.id == 2).values(target=7))
    with pytest.raises(Damaged, match="entry 2 of the log"):
        store.verify()
    store.close()


def test_a_store_is_opened_for_the_base_that_it_was_made_for(url: str, base: Base) -> None:
    with pytest.raises(NotFound, match="there is no store at"):
        Store.existing(url)
    Store(url, base).close()
    store = Store.existing(url)
    assert store.base == base
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
