"""An hour's worth of everything at once, in minutes: answers, fixes, undos, rollbacks and kills.

Two replicas on one PostgreSQL. Nothing that was acknowledged may be lost, no answer may be wrong,
both replicas must end equal, and memory stays flat. TPATCHER_SOAK=600 makes it ten minutes.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from tests import postgres as pg
from tests.attack.soak import Soak

SECONDS = float(os.environ.get("TPATCHER_SOAK", "90"))
GROWTH = 16 << 20  # bytes that a replica may have more than when it had done everything once


def test_nothing_is_lost_and_no_answer_is_wrong(saved: Path, postgres: pg.Server) -> None:
    with Soak(saved, postgres.url()) as soak:
        rounds = 0
        ends_at = time.monotonic() + SECONDS
        while rounds < 2 or time.monotonic() < ends_at:
            with soak.under_load():
                time.sleep(2)
                soak.kill(rounds % 2, signal.SIGKILL)
                time.sleep(2)
                if rounds % 2:
                    postgres.kill()
                    time.sleep(0.5)
                    postgres.start()
                else:
                    soak.kill(1, signal.SIGTERM)
                time.sleep(2)
                soak.rollback()
                time.sleep(1)
            soak.compare()
            rounds += 1
        assert soak.counts["fixed"] >= 20 and soak.counts["answers"] >= 200, soak.counts
        assert soak.counts["undone"] and soak.counts["rolled back"] == rounds, soak.counts
        assert not soak.problems, soak.problems[:5]
        print(f"\n{rounds} rounds: {dict(soak.counts)}")


def test_memory_stays_flat(
    saved: Path, postgres: pg.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # by itself glibc gives every thread its own memory, and each may keep what an edit needed
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    with Soak(saved, postgres.url()) as soak:
        soak.warm_up()
        before = [one.resident for one in soak.replicas]
        for _ in range(3):
            with soak.under_load():
                time.sleep(SECONDS / 6)
            soak.rollback(0)
        after = [one.resident for one in soak.replicas]
        soak.compare()
        assert not soak.problems, soak.problems[:5]
        grown = [b - a for a, b in zip(before, after, strict=True)]
        print(f"\ngrown by {[g >> 20 for g in grown]} MB: {dict(soak.counts)}")
        assert max(grown) < GROWTH
