"""Moving a store's fixes into a new base that has learned them, with a new store beside it.

One entry in the old store decides: until it is there nothing has changed, and from then on every
service that follows that store, or is started with it, uses the new base and the new store.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tpatcher.checkpoints.consolidate import Outcome, Settings, consolidate, fixes_to_teach
from tpatcher.editors import TPatcher
from tpatcher.errors import AlreadyRight, BadInput, Refused, StaleHead, StoreMoved
from tpatcher.example import Example
from tpatcher.models.model import Model
from tpatcher.store import engine, location, tables
from tpatcher.store.location import Successor, without_password
from tpatcher.store.store import Fix, Store
from tpatcher.store.tables import REPORT


@dataclass(frozen=True)
class Settled:
    """A move that was made."""

    to: Successor
    outcome: Outcome
    fixed_again: int  # fixes that came in meanwhile: the first ones of the new store


def move(
    model: Model,
    store: Store,
    texts: Sequence[str],
    directory: str | Path,
    url: str | Path | None = None,
    *,
    canaries: Sequence[Example] = (),
    settings: Settings | None = None,
    progress: bool = False,
) -> Settled:
    """Teach a new base the store's live fixes, and let the store go on in a new one at `url`.

    If a check fails, or this is stopped, nothing has changed; begun again, it goes on.
    """
    if gone := location.successor(store):
        raise StoreMoved(f"this store has moved to {gone.store!r}; consolidate that one")
    path, new_url = Path(directory).resolve(), _new_store(store, directory, url)
    ids = store.live_ids()
    patched = model.twin()
    patched.set_patches(store.patches(ids))
    learned = location.learned(store)
    new, outcome = consolidate(
        patched,
        texts,
        path,
        learned=learned,
        canaries=canaries,
        settings=settings,
        progress=progress,
    )
    to, begun = Successor(str(path), without_password(new_url)), None
    try:
        begun = Store(new_url, new.base, new=True)  # so all its tables are ours to drop
        location.record_learned(begun, fixes_to_teach(patched, learned))
        fixed_again = _hand_over(store, ids, new, begun, to, texts)
    except BaseException:  # a stop from the keyboard too
        if location.successor(store) is None:  # the deciding entry is not there
            if begun is not None:
                tables.METADATA.drop_all(begun.engine)
                begun.close()
            shutil.rmtree(path)
        raise
    move_reports(store, begun)
    begun.close()
    return Settled(to, outcome, fixed_again)


def _hand_over(
    store: Store, ids: Sequence[int], new: Model, begun: Store, to: Successor, texts: Sequence[str]
) -> int:
    """Record the move in the old store; returns how many late fixes the new store begins with."""
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
            _fix_again(new, begun, late, texts)
            known = now
        try:
            location.record_move(store, to, parent=head, who="consolidate")
        except StoreMoved:  # somebody else has consolidated it
            raise
        except StaleHead:  # one more came in: take it along too
            continue
        return len(begun.live_ids())


def _fix_again(new: Model, begun: Store, late: Sequence[Fix], texts: Sequence[str]) -> None:
    """Fix on the new base what was fixed on the old one after its fixes had been read."""
    editor = TPatcher().fit(new, [*texts, *(e.text for e in location.learned(begun))])
    for fix in late:
        assert fix.example is not None, "a store that is served keeps every fix with its text"
        try:
            patch = editor.edit(new, fix.example, supersede=True)
        except AlreadyRight:  # the new base has learned it from the others
            continue
        new.push(patch)
        begun.append(patch, who=fix.who)


def move_reports(left: Store, begun: Store) -> None:
    """Move the reports that wait in a store into its successor.

    The new store has them first: if this is stopped between the two, a report is there twice.
    """
    waiting = REPORT.c.settled.is_(None)
    query = sa.select(*(column for column in REPORT.c if column.name != "id")).where(waiting)
    with left.writing() as old:
        if rows := [dict(row._mapping) for row in old.execute(query)]:
            with begun.writing() as new:
                new.execute(REPORT.insert(), rows)
            old.execute(REPORT.update().where(waiting).values(settled="moved"))


def _new_store(store: Store, directory: str | Path, url: str | Path | None) -> str:
    """The URL of the new store, which must be empty; without one, a file beside the new base."""
    if url is None and store.engine.dialect.name != "sqlite":
        raise BadInput(
            "this store is no file: give the URL of an empty database for the fixes of the new base"
        )
    found = str(url) if url is not None else f"{Path(directory).resolve()}.db"
    found = found if "://" in found else str(Path(found).resolve())
    with location.peek(found) as connection:
        if connection is not None:
            try:
                engine.refuse_if_taken(connection)
            except BadInput as error:
                raise BadInput(
                    f"{without_password(found)} cannot be the new store: {error}"
                ) from error
    return found
