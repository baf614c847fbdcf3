"""The store: what was acknowledged is there, what is damaged is named, nothing is lost."""

import random
import subprocess
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import postgres as pg
from tests import zoo
from tpatcher.errors import BadInput, Damaged, NotFound, NotStored, StaleHead, WrongBase
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.patches.neurons import Neurons
from tpatcher.store import engine
from tpatcher.store import tables as schema
from tpatcher.store.store import Store

postgres = pytest.fixture(scope="module")(pg.running)
url = pytest.fixture(params=["sqlite", "postgres"])(pg.place)


def fitting() -> Model:
    """A model that the store is for."""
    return Model(zoo.net("bert"), zoo.tokenizer("classify"), "classify")


model = pytest.fixture(scope="module")(fitting)


def patch(n: int, d: int = 32) -> Neurons:
    """A patch that differs from the others in every number."""
    one = torch.full((1, d), float(n))
    return Neurons(
        example=Example(f"question {n}", "yes"), editor="t-patcher", report={"n": n}, layer=-1,
        keys=one, bias=one[0, :1], values=one, queries=one, states=one,
        tokens=torch.tensor([1]),
    )  # fmt: skip


def test_what_is_appended_is_live_in_order_and_after_opening_again(url: str, model: Model) -> None:
    store = Store(url, model)
    assert (store.head, store.live()) == (0, [])
    ids = [store.append(patch(n), who="ann", settings={"preset": "fast"}) for n in (1, 2, 3)]
    store.close()
    again = Store(url, model)
    assert ids == [1, 2, 3] == again.live_ids()
    assert [p.id for p in again.live()] == [patch(n).id for n in (1, 2, 3)]
    assert torch.equal(again.live()[1].tensors["keys"], patch(2).keys)
    fix = again.fix(2)
    assert (fix.who, fix.editor, fix.settings) == ("ann", "t-patcher", {"preset": "fast"})
    assert (fix.example, fix.report) == (Example("question 2", "yes"), {"n": 2})
    again.close()


def test_removing_and_rolling_back_delete_nothing(url: str, model: Model) -> None:
    store = Store(url, model)
    for n in (1, 2, 3):
        store.append(patch(n))
    assert store.remove(2) == 4
    assert store.live_ids() == [1, 3]
    assert store.rollback(2) == 5
    assert store.live_ids() == [1, 2]
    assert store.rollback(4) == 6  # to after the removal: an undone state can be live again
    assert store.live_ids() == [1, 3]
    assert store.rollback(0) == 7
    assert store.live() == []
    assert store.append(patch(2)) == 8  # the same fix again, under a number of its own
    assert (store.live_ids(), store.live_ids(at=3)) == ([8], [1, 2, 3])
    actions = [(e.action, e.target) for e in store.log()][3:7]
    assert actions == [("remove", 2), ("rollback", 2), ("rollback", 4), ("rollback", 0)]
    assert [f.id for f in store.fixes()] == [1, 2, 3, 8]
    for wrong in (lambda: store.remove(2), lambda: store.rollback(99), lambda: store.fix(4)):
        with pytest.raises(NotFound):
            wrong()
    store.close()


@given(st.lists(st.tuples(st.sampled_from("ARB"), st.integers(0, 9)), max_size=12))
@settings(max_examples=20, deadline=None)
def test_live_is_what_a_plain_list_would_say(
    tmp_path_factory: pytest.TempPathFactory, model: Model, steps: list[tuple[str, int]]
) -> None:
    store = Store(tmp_path_factory.mktemp("s") / "s.db", model)
    states: list[list[int]] = [[]]
    for action, n in steps:
        now = states[-1]
        if action == "A":
            states.append([*now, store.append(patch(len(states)))])
        elif action == "R" and now:
            gone = now[n % len(now)]
            store.remove(gone)
            states.append([i for i in now if i != gone])
        elif action == "B":
            store.rollback(n % len(states))
            states.append(states[n % len(states)])
    assert store.live_ids() == states[-1]
    assert [store.live_ids(at=i) for i in range(1, len(states))] == states[1:]
    store.close()


def test_a_pack_goes_out_and_comes_in(url: str, model: Model, tmp_path: Path) -> None:
    store, other = Store(url, model), Store(tmp_path / "other.db", model)
    for n in (1, 2):
        store.append(patch(n))
    store.export_pack(tmp_path / "pack")
    other.append(patch(2))
    assert other.import_pack(tmp_path / "pack", who="bob") == [2]  # the one that it had stays one
    assert sorted(p.id for p in other.live()) == sorted(p.id for p in store.live())
    store.close()
    other.close()


def test_a_patch_made_for_an_older_head_is_turned_away(url: str, model: Model) -> None:
    store = Store(url, model)
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


def test_a_key_finds_its_callers_fix_again(url: str, model: Model) -> None:
    store = Store(url, model)
    store.append(patch(1), who="ann", key="k")
    found = store.by_key("ann", "k")
    assert found is not None and found.id == 1
    assert store.by_key("bob", "k") is None
    store.close()


def test_many_writers_at_once_each_take_their_turn(url: str, model: Model) -> None:
    stores = [Store(url, model) for _ in range(4)]
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


def test_another_base_is_refused(url: str, model: Model) -> None:
    Store(url, model).close()
    other = Model(zoo.net("bert", seed=1), zoo.tokenizer("classify"), "classify")
    with pytest.raises(WrongBase, match="but this model is"):
        Store(url, other)


@pytest.mark.parametrize("bad", ["mysql://x", "sqlite://", ":memory:", "postgresql+nope://x"])
def test_what_is_no_store_is_named(bad: str, model: Model) -> None:
    with pytest.raises(BadInput):
        Store(bad, model)


def test_a_flipped_byte_in_a_blob_is_found_and_named(url: str, model: Model) -> None:
    store = Store(url, model)
    for n in (1, 2, 3):
        store.append(patch(n))
    with store.writing() as connection:
        where = schema.PATCH.c.id == 2
        blob = bytearray(
            connection.execute(sa.select(schema.PATCH.c.tensors).where(where)).scalar_one()
        )
        blob[-5] ^= 1
        connection.execute(schema.PATCH.update().where(where).values(tensors=bytes(blob)))
    with pytest.raises(Damaged, match="fix 2 is not what was appended"):
        store.live()
    store.remove(2)  # and the way out needs none of its bytes
    assert [p.id for p in store.live()] == [patch(1).id, patch(3).id]
    store.close()


@pytest.mark.parametrize(
    "blob", [b"", b"\x00" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", b"pickle"]
)
def test_a_blob_that_is_no_patch_is_named(tmp_path: Path, model: Model, blob: bytes) -> None:
    store = Store(tmp_path / "s.db", model)
    with store.writing() as connection:  # with a sound checksum: only reading it can tell
        row = {**store._row(patch(1), None, {}, {}), "tensors": blob}
        store._add(connection, "append", None, None, "", row)
    with pytest.raises(Damaged, match="fix 1: "):
        store.live()
    store.close()


def test_a_line_changed_or_cut_out_of_the_log_is_found(url: str, model: Model) -> None:
    store = Store(url, model)
    for n in (1, 2, 3):
        store.append(patch(n), who="ann")
    entry = schema.ENTRY
    with store.writing() as connection:
        connection.execute(entry.update().where(entry.c.id == 2).values(who="eve"))
    with pytest.raises(Damaged, match="entry 2 of the log"):
        store.live()
    with store.writing() as connection:
        connection.execute(entry.delete().where(entry.c.id == 2))
    with pytest.raises(Damaged, match="entry 3 after 1"):
        store.log()
    store.close()


def test_no_flipped_byte_of_the_file_gives_a_wrong_patch(tmp_path: Path, model: Model) -> None:
    file = tmp_path / "s.db"
    store = Store(file, model)
    for n in range(8):
        store.append(patch(n))
    store.close()
    whole, right = file.read_bytes(), [patch(n).id for n in range(8)]
    rng, found = random.Random(0), 0
    for _ in range(60):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        for rest in tmp_path.glob("s.db-*"):
            rest.unlink()
        try:
            store = Store(file, model)
            try:
                assert [p.checksum[:12] for p in store.live()] == right
            finally:
                store.close()
        except (Damaged, NotStored, WrongBase, BadInput):
            found += 1
    assert found > 10


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path, model: Model) -> None:
    store = Store(tmp_path / "s.db", model)

    @sa.event.listens_for(store.engine, "begin")
    def small(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")

    fills(store)


def fills(store: Store) -> None:
    """Append until the disk is full; then all that was acknowledged must be there."""
    acknowledged = 0
    with pytest.raises(NotStored, match="nothing was changed"):
        while acknowledged < 10_000:
            store.append(patch(acknowledged, d=512))
            acknowledged += 1
    assert acknowledged > 3
    with pytest.raises(NotStored):
        store.append(patch(-1, d=512))
    assert len(store.live()) == acknowledged == store.head
    store.close()


@pytest.mark.slow
def test_a_full_tmpfs_is_an_error_and_loses_nothing(tmp_path: Path, model: Model) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tpatcher", str(tmp_path)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        fills(Store(tmp_path / "s.db", model))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_an_older_store_is_brought_up_to_date_and_a_newer_one_refused(
    url: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(url, model)
    store.append(patch(1))
    later = [schema.REPORT, schema.EVENT, schema.MOVE, schema.TAUGHT]
    with store.writing() as connection:  # as version 1 left it
        schema.METADATA.drop_all(connection, tables=later)
        connection.execute(schema.ABOUT.update().values(version=1))
    store.close()
    store = Store(url, model)
    assert [p.id for p in store.live()] == [patch(1).id]
    assert all(sa.inspect(store.engine).has_table(table.name) for table in later)
    store.close()
    monkeypatch.setattr(engine, "MIGRATIONS", engine.MIGRATIONS[:1])
    with pytest.raises(BadInput, match="version 3, but this tpatcher knows up to 1"):
        Store(url, model)


def test_reading_two_thousand_fixes_takes_seconds_at_most(tmp_path: Path, model: Model) -> None:
    store = Store(tmp_path / "s.db", model)
    one, many = patch(1), 2_000
    with store.writing() as connection:  # one commit: the disk is not what is measured
        row = store._row(one, None, {}, {})
        for _ in range(many):
            store._add(connection, "append", None, None, "", row)
    began = time.perf_counter()
    assert len(store.live()) == many
    assert time.perf_counter() - began < 5
    store.close()
