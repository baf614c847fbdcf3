"""The store under SIGKILL: every acknowledged fix is there, none is half there."""

import os
import random
import signal
import threading
import time

import pytest

from tests import postgres as pg
from tests.store.made import patch
from tpatcher.errors import NotStored
from tpatcher.patches.neurons import Neurons
from tpatcher.patches.pack import Base
from tpatcher.store.store import Store


def kill_in_the_middle(url: str, base: Base, kills: int, patches: list[Neurons]) -> None:
    """Fork a writer, kill it after a few milliseconds, look; and again, on the same store."""
    rng, known = random.Random(0), 0
    for _ in range(kills):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # only what the store needs runs here, and nothing that was open before
            store = Store(url, base)
            while True:
                id = store.append(patches[store.head % len(patches)])
                os.write(write, id.to_bytes(4, "little"))
        os.close(write)
        first = os.read(read, 4)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rest = b""
        while more := os.read(read, 65536):
            rest += more
        os.close(read)
        acknowledged = int.from_bytes((first + rest)[-4:], "little")
        store = Store(url, base)
        ids = store.live_ids()
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) in (acknowledged, acknowledged + 1)  # one may be there unacknowledged
        fresh = ids[known:]
        assert [p.id for p in store.patches(fresh)] == [
            patches[(i - 1) % len(patches)].id for i in fresh
        ]
        known = len(ids)
        store.close()
    store = Store(url, base)
    assert len(store.live()) == known >= kills
    store.close()


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_every_acknowledged_fix_survives_a_kill(url: str, base: Base, kills: int) -> None:
    kill_in_the_middle(url, base, kills, [patch(n) for n in range(7)])


@pytest.mark.slow
def test_every_acknowledged_fix_survives_a_kill_of_the_server(base: Base) -> None:
    if pg.BIN is None:
        pytest.skip("PostgreSQL is not installed")
    with pg.server() as server:
        url, acknowledged = server.url(), 0
        for turn in range(5):
            store = Store(url, base)
            timer = threading.Timer(0.3 + 0.05 * turn, server.kill)
            timer.start()
            with pytest.raises(NotStored):
                while True:
                    acknowledged = store.append(patch(store.head))
            timer.join()
            store.close()
            server.start()
            store = Store(url, base)
            assert len(store.live()) == store.head in (acknowledged, acknowledged + 1)
            store.close()
