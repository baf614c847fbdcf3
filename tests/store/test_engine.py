"""Opening a store: what is no store, damaged, full or of another version is named."""

import random
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.store.made import patch
from tpatcher.errors import BadInput, Damaged, NotStored, WrongBase
from tpatcher.patches.pack import Base
from tpatcher.store.engine import VERSION
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
