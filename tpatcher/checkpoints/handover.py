"""From a base with a long chain of fixes to one that has learned them, with a chain of its own.

The entry in the old store is what decides: until it is there nothing has changed, and from then
on whoever follows that store, or is started with it, goes on with the new base and the new store.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tpatcher.checkpoints.consolidate import Recipe, Report, consolidate, learned
from tpatcher.editors import TPatcher
from tpatcher.errors import AlreadyRight, BadInput, Refused, StaleHead, StoreMoved
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.store import tables
from tpatcher.store.location import peek, without_password
from tpatcher.store.log import Successor
from tpatcher.store.store import Fix, Store
from tpatcher.store.tables import REPORT


@dataclass(frozen=True)
class Settled:
    """A move that was made."""

    to: Successor
    report: Report
    carried: int  # fixes that came in meanwhile and begin the new chain


def move(
    model: Model,
    store: Store,
    texts: Sequence[str],
    directory: str | Path,
    url: str | Path | None = None,
    *,
    canaries: Sequence[Example] = (),
    recipe: Recipe | None = None,
    progress: bool = False,
) -> Settled:
    """Consolidate a store's live fixes into a new base, and let the chain go on in a new store.

    If a check fails, or this is stopped, nothing has changed and nothing is left behind.
    """
    if gone := store.successor():
        raise StoreMoved(f"this store has moved to {gone.store!r}; consolidate that one")
    path, place = Path(directory).resolve(), new_store(store, directory, url)
    ids = store.live_ids()
    worn = model.twin()
    worn.set_patches(store.patches(ids))
    taught = store.learned()
    new, report = consolidate(
        worn, texts, path, taught=taught, canaries=canaries, recipe=recipe, progress=progress
    )
    to, begun = Successor(str(path), without_password(place)), None
    try:
        begun = Store(place, new)
        begun.record_learned(learned(worn, taught))
        carried = hand_over(store, ids, new, begun, to, texts)
    except BaseException:  # a stop from the keyboard too
        if store.successor() is None:  # the deciding entry is not there: nothing has changed
            if begun is not None:
                tables.METADATA.drop_all(begun.engine)
                begun.close()
            shutil.rmtree(path)
        raise
    carry(store, begun)
    begun.close()
    return Settled(to, report, carried)


def hand_over(
    store: Store, ids: Sequence[int], new: Model, begun: Store, to: Successor, texts: Sequence[str]
) -> int:
    """Say in the old store where it goes on; fixes that came in meanwhile begin the new chain."""
    known = list(ids)
    while True:
        head = store.head
        now = store.live_ids(head)
        if undone := sorted(set(known) - set(now)):
            raise Refused(
                f"fix {undone[0]} was undone while the new base was made, and cannot be taken "
                "out of it; consolidate once more"
            )
        if late := store.fixes(set(now) - set(known)):
            fix_again(new, begun, late, texts)
            known = now
        try:
            store.move(to, parent=head, who="consolidate")
        except StoreMoved:  # somebody else has consolidated it
            raise
        except StaleHead:  # one more came in: take it along too
            continue
        return len(begun.live_ids())


def fix_again(new: Model, begun: Store, late: Sequence[Fix], texts: Sequence[str]) -> None:
    """Fix on the new base what was fixed on the old one after its fixes had been read."""
    editor = TPatcher().fit(new, [*texts, *(e.text for e in begun.learned())])
    for fix in late:
        assert fix.example is not None, "a store that is served keeps every fix with its text"
        try:
            patch = editor.edit(new, fix.example, supersede=True)
        except AlreadyRight:  # the new base has learned it from the others
            continue
        new.push(patch)
        begun.append(patch, who=fix.who)


def carry(left: Store, begun: Store) -> None:
    """Take the reports that wait in a store over into the one that has followed it.

    The new store has them first: if this is stopped between the two, a report is there twice.
    """
    waiting = REPORT.c.settled.is_(None)
    with left.writing() as old:
        rows = [dict(row._mapping) for row in old.execute(sa.select(REPORT).where(waiting))]
        if rows:
            for row in rows:
                del row["id"]
            with begun.writing() as new:
                new.execute(REPORT.insert(), rows)
            old.execute(REPORT.update().where(waiting).values(settled="moved"))


def new_store(store: Store, directory: str | Path, url: str | Path | None) -> str:
    """The new store's place: an empty one, a file beside the new base if none is given."""
    if url is None and store.engine.dialect.name != "sqlite":
        raise BadInput("give --new-store, an empty database for the fixes of the new base")
    place = str(url) if url is not None else f"{Path(directory).resolve()}.db"
    place = place if "://" in place else str(Path(place).resolve())
    with peek(place) as connection:
        taken = connection is not None and sa.inspect(connection).has_table("about")
    if taken:
        raise BadInput(
            f"{without_password(place)} is a store already; the new base needs one of its own"
        )
    return place
