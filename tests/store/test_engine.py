"""Opening a store: what is no store, damaged, full or of another version is named."""

import random
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.store.made import patch
from tpatcher.errors import BadInput, Damaged, NotStored, WrongBase
from tpatcher.patches.pack import Base
from tpatcher.store.engine import VERSION, connect
from tpatcher.store.store import Store
from tpatcher.store.tables import ABOUT


def test_another_base_is_refused(url: str, base: Base) -> None:
    Store(url, base).close()
    other = Base("other", "another fingerprint")
    with pytest.raises(WrongBase, match="but this model is"):
        Store(url, other)


@pytest.mark.parametrize("bad", ["mysql://x", "sqlite://", ":memory:", "postgresql+nope://x"])
def test_what_is_no_store_is_named(bad: str, base: Base) -> None:
    with pytest.raises(BadInput):
        Store(bad, base)


def test_no_flipped_byte_of_the_file_gives_a_wrong_patch(tmp_path: Path, base: Base) -> None:
    file = tmp_path / "s.db"
    store = Store(file, base)
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
            store = Store(file, base)
            try:
                assert [p.checksum[:12] for p in store.live()] == right
            finally:
                store.close()
        except (Damaged, NotStored, WrongBase, BadInput):
            found += 1
    assert found > 10


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path, base: Base) -> None:
    store = Store(tmp_path / "s.db", base)

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
def test_a_full_tmpfs_is_an_error_and_loses_nothing(tmp_path: Path, base: Base) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tpatcher", str(tmp_path)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        fills(Store(tmp_path / "s.db", base))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("version", "advice"), [(2, "with the tpatcher that wrote it"), (4, "use a newer tpatcher")]
)
def test_a_store_of_another_version_is_refused(
    url: str, base: Base, version: int, advice: str
) -> None:
    store = Store(url, base)
    store.append(patch(1))
    with store.writing() as connection:
        connection.execute(ABOUT.update().values(version=version))
    with pytest.raises(BadInput, match=f"version {version}, but .* version {VERSION}; .*{advice}"):
        Store(url, base)
    with store.writing() as connection:
        connection.execute(ABOUT.update().values(version=VERSION))
    store.close()
    again = Store(url, base)
    assert [p.id for p in again.live()] == [patch(1).id]
    again.close()


@pytest.mark.parametrize("table", ["report", "event", "about"])
def test_tables_of_something_else_are_left_alone(url: str, base: Base, table: str) -> None:
    other = connect(url)
    with other.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {table} (colour TEXT)"))
        connection.execute(sa.text(f"INSERT INTO {table} VALUES ('red')"))
    with pytest.raises((BadInput, NotStored)):
        Store(url, base)
    with pytest.raises(BadInput, match=f"tables already that a new store would make .{table}"):
        Store(url, base, new=True)
    with other.connect() as connection:
        assert sa.inspect(connection).get_table_names() == [table]
        assert connection.execute(sa.text(f"SELECT colour FROM {table}")).scalar_one() == "red"
    other.dispose()


def test_a_store_that_is_there_is_not_new(url: str, base: Base) -> None:
    Store(url, base, new=True).close()
    with pytest.raises(BadInput, match="tables already"):
        Store(url, base, new=True)
    Store(url, base).close()


@pytest.mark.parametrize("bad", ["postgresql+psycopg2", "postgresql+nope", "mysql"])
@pytest.mark.parametrize("port", ["5432", "port"])
def test_an_error_does_not_show_the_password(base: Base, bad: str, port: str) -> None:
    with pytest.raises(BadInput) as refused:
        Store(f"{bad}://bob:S3cretPw@host:{port}/db", base)
    assert "S3cretPw" not in str(refused.value)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_removed_or_replaced_is_noticed(
    tmp_path: Path, base: Base, replaced: bool
) -> None:
    file = tmp_path / "s.db"
    store = Store(file, base)
    store.append(patch(1))
    other = Store(tmp_path / "other.db", base)
    other.close()
    for part in tmp_path.glob("s.db*"):
        part.rename(tmp_path / f"kept-{part.name}")
    if replaced:
        (tmp_path / "other.db").rename(file)
    for use in (lambda: store.append(patch(2)), lambda: store.head, lambda: store.live()):
        with pytest.raises(NotStored, match="was removed or replaced"):
            use()
    for part in tmp_path.glob("kept-*"):
        part.replace(tmp_path / part.name.removeprefix("kept-"))
    assert store.append(patch(2)) == 2
    store.close()
