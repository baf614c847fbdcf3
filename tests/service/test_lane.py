"""One owner cannot fill a lane."""

import threading

import pytest

from tpatcher.errors import Busy
from tpatcher.service.lane import Lane


def test_an_owner_may_have_a_quarter_of_a_lane() -> None:
    lane, go = Lane("edits", 16), threading.Event()
    works = [lane.submit(go.wait, 60, owner="eve") for _ in range(4)]
    with pytest.raises(Busy, match="of 'eve' wait already"):
        lane.submit(go.wait, owner="eve")
    works += [lane.submit(go.wait, 60, owner="ann") for _ in range(4)]
    works += [lane.submit(go.wait, 60) for _ in range(8)]
    with pytest.raises(Busy, match="16 edits"):
        lane.submit(go.wait, owner="bob")
    go.set()
    for work in works:
        assert work.result(60)
    for _ in range(9):
        lane.submit(lambda: 1, owner="eve").result(60)
    lane.close()
