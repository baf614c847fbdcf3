"""The log: every state that was live can be live again, and a changed line is found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.made import patch
from tpatcher.errors import Damaged, NotFound
from tpatcher.patches.pack import Base
from tpatcher.store.store import Store
from tpatcher.store.tables import ENTRY


def test_removing_and_rolling_back_delete_nothing(url: str, base: Base) -> None:
    store = Store(url, base)
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
    tmp_path_factory: pytest.TempPathFactory, base: Base, steps: list[tuple[str, int]]
) -> None:
    store = Store(tmp_path_factory.mktemp("s") / "s.db", base)
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


def test_a_line_changed_or_cut_out_of_the_log_is_found(url: str, base: Base) -> None:
    store = Store(url, base)
    for n in (1, 2, 3):
        store.append(patch(n), who="ann")
    entry = ENTRY
    with store.writing() as connection:
        connection.execute(entry.update().where(entry.c.id == 2).values(who="eve"))
    with pytest.raises(Damaged, match="entry 2 of the log"):
        store.live()
    with store.writing() as connection:
        connection.execute(entry.delete().where(entry.c.id == 2))
    with pytest.raises(Damaged, match="entry 3 after 1: an entry is missing"):
        store.log()
    store.close()
