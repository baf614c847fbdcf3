"""Fixes in pages."""

from dataclasses import replace

import sqlalchemy as sa

from tests.store.made import patch
from tpatcher.data.reports import Correction
from tpatcher.example import Example
from tpatcher.patches.pack import Base
from tpatcher.store.audit import Audit
from tpatcher.store.listing import BLOCK, page
from tpatcher.store.reports import Reports
from tpatcher.store.store import Store
from tpatcher.store.tables import PATCH, timestamp


def test_pages_hold_every_fix_once_newest_first(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append_many(patch(n) for n in range(BLOCK + 23))
    seen: list[int] = []
    before = None
    while True:
        found = page(store, 50, before=before)
        assert found.total == BLOCK + 23
        seen += [fix.id for fix in found.fixes]
        if (before := found.next) is None:
            break
    assert seen == list(range(BLOCK + 23, 0, -1))
    assert [f.id for f in page(store, 3, among={5, 9}).fixes] == [9, 5]
    store.close()


def test_a_search_finds_texts_and_not_the_names_of_fields(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append_many(patch(n) for n in range(12))
    texts = {fix.id: fix.example.text for fix in store.fixes() if fix.example}
    wanted = texts[7]
    hits = [f.id for f in page(store, 50, search=wanted.upper()).fixes]
    assert 7 in hits and all(wanted.lower() in texts[i].lower() for i in hits)
    for nothing in ("rephrasings", '"answer"', "%", "_", "\\", "100%"):
        assert page(store, 50, search=nothing).fixes == []
    with store.writing() as connection:  # one that cannot be read hides no other
        connection.execute(PATCH.update().where(PATCH.c.id == 3).values(example="{"))
    assert len(page(store, 50).fixes) == 11
    store.close()


def test_a_search_folds_the_case_of_every_script(url: str, base: Base) -> None:
    store = Store(url, base)
    store.append(replace(patch(1), example=Example("L'ÉTAT, c'est qui ?", "МОСКВА")))
    store.append(patch(2))
    for words in ("état", "ÉTAT", "москва"):
        assert [fix.id for fix in page(store, 50, search=words).fixes] == [1]
    store.close()


def test_what_is_old_and_settled_is_pruned(url: str, base: Base) -> None:
    store = Store(url, base)
    reports, audit = Reports(lambda: store, 10), Audit(lambda: store)
    assert reports.add_many([Correction(f"text {n}") for n in range(12)], "ann") == (
        10, "10 reports are waiting already",
    )  # fmt: skip
    reports.settle(1, "dismissed")
    audit.note("ann", "report")
    assert (reports.prune(timestamp(hours_ago=1)), audit.prune(timestamp(hours_ago=1))) == (0, 0)
    later = timestamp(hours_ago=-1)
    assert (reports.prune(later), audit.prune(later)) == (1, 1)
    assert reports.count() == 9
    with store.reading() as connection:
        assert sa.inspect(connection).has_table("event")
    store.close()
