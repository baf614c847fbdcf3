"""A chain moves to a new base: at once, with all that came in meanwhile, and back again."""

from pathlib import Path

import pytest

from tests import postgres as pg
from tests.service import served
from tests.service.served import ASKED, wrong
from tests.test_consolidate import EASY, TEXTS
from tpatcher.checkpoints.handover import move
from tpatcher.errors import BadInput, Damaged, NotFound, Refused, StaleHead, StoreMoved
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.store.location import follow, with_password, without_password
from tpatcher.store.log import Successor
from tpatcher.store.store import Store
from tpatcher.store.tables import MOVE

postgres = pytest.fixture(scope="module")(pg.running)
url = pytest.fixture(params=["sqlite", "postgres"])(pg.place)


def fixed(url: str | Path, *texts: str) -> Store:
    """A store with fixes of these texts."""
    model, editor = served.fitted()
    store, worn = Store(url, model), model.twin()
    for text in texts:
        worn.push(editor.edit(worn, Example(text, wrong(worn.answer([text])[0]))))
        store.append(worn.patches[-1], who="ann")
    return store


def new_place(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str | None:
    if "://" not in url:
        return None
    server: pg.Server = request.getfixturevalue("postgres")
    return server.url()


def test_the_chain_goes_on_at_the_new_base_and_can_come_back(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store, model = fixed(url, ASKED, "is it red ?"), served.fitted()[0]
    fixes = [f.example for f in store.fixes() if f.example]
    place = new_place(url, tmp_path, request)
    if "://" in url:
        with pytest.raises(BadInput, match="--new-store"):
            move(model, store, TEXTS, tmp_path / "new", recipe=EASY)
    done = move(model, store, TEXTS, tmp_path / "new", place, recipe=EASY)
    assert (done.carried, done.to.model) == (0, str(tmp_path / "new"))
    assert follow("old", url) == (done.to.model, done.to.store)
    new = load(done.to.model)
    begun = Store(done.to.store, new)
    assert (begun.head, begun.live_ids(), begun.learned()) == (0, [], fixes)
    assert all(new.correct(fixes))
    # the old store is a closed book: no change is taken, and what was live can still be read
    for change in (
        lambda: store.append(store.live()[0]),
        lambda: store.remove(1),
        lambda: store.rollback(0),
        lambda: move(model, store, TEXTS, tmp_path / "other", recipe=EASY),
    ):
        with pytest.raises(StoreMoved):
            change()
    assert store.live_ids() == [1, 2] and store.log()[-1].action == "move"
    assert store.undo_move() == 4
    assert follow("old", url) == ("old", url) and store.live_ids() == [1, 2]
    with pytest.raises(NotFound, match="has not moved"):
        store.undo_move()
    assert store.remove(1) == 5
    store.close()
    begun.close()


def test_fixes_that_come_in_meanwhile_begin_the_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, (model, editor) = fixed(tmp_path / "s.db", ASKED), served.fitted()
    late, asked = list[Example](), ["is it red ?", "where is the cat ?"]
    real, calls = Store.move, list[object]()

    def slow(self: Store, *args: object, **more: object) -> int:
        calls.append(more["parent"])
        if len(late) < len(asked):  # somebody fixes one more, just before it is recorded
            worn, text = model.twin(), asked[len(late)]
            worn.set_patches(store.live())
            late.append(Example(text, wrong(worn.answer([text])[0])))
            store.append(editor.edit(worn, late[-1]), who="bob")
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "move", slow)
    done = move(model, store, TEXTS, tmp_path / "new", recipe=EASY)
    new = load(done.to.model)
    begun = Store(done.to.store, new)
    new.set_patches(begun.live())
    assert calls == [1, 2, 3]
    assert all(new.correct([*late, *begun.learned()]))
    assert len(begun.live_ids()) == done.carried <= 2
    store.close()
    begun.close()


def test_a_fix_that_is_undone_meanwhile_stops_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]

    def undone(self: Store, *args: object, **more: object) -> int:
        store.remove(1)
        raise StaleHead("made for entry 1, but the store is at 2 by now")

    monkeypatch.setattr(Store, "move", undone)
    with pytest.raises(Refused, match="fix 1 was undone"):
        move(model, store, TEXTS, tmp_path / "new", recipe=EASY)
    assert store.successor() is None and not (tmp_path / "new").exists()
    monkeypatch.undo()
    store.rollback(1)
    assert move(model, store, TEXTS, tmp_path / "new", recipe=EASY).report.fixes == 1
    store.close()


def test_stopped_before_the_entry_nothing_is_left_and_after_it_nothing_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]
    real, late = Store.move, False

    def stopped(self: Store, *args: object, **more: object) -> int:
        if late:
            real(self, *args, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "move", stopped)
    with pytest.raises(KeyboardInterrupt):
        move(model, store, TEXTS, tmp_path / "new", recipe=EASY)
    assert store.successor() is None and not (tmp_path / "new").exists()
    late = True
    with pytest.raises(KeyboardInterrupt):
        move(model, store, TEXTS, tmp_path / "new", recipe=EASY)
    name, place = follow("old", tmp_path / "s.db")
    begun = Store(place, load(name))
    assert len(begun.learned()) == 1
    store.close()
    begun.close()


def test_a_new_store_must_be_new(tmp_path: Path) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]
    with pytest.raises(BadInput, match="is a store already"):
        move(model, store, TEXTS, tmp_path / "new", tmp_path / "s.db")
    store.close()


def test_a_record_that_was_changed_is_found(tmp_path: Path) -> None:
    store = fixed(tmp_path / "s.db", ASKED)
    store.move(Successor("here", "there"), parent=1)
    with store.writing() as connection:
        connection.execute(MOVE.update().values(model="elsewhere"))
    with pytest.raises(Damaged, match="the move, is not what was written"):
        follow("old", tmp_path / "s.db")
    store.close()


def test_moves_in_a_circle_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixed(tmp_path / "s.db", ASKED)
    store.move(Successor("here", str(tmp_path / "s.db")), parent=1)
    monkeypatch.setattr("tpatcher.store.location.MAX_MOVES", 5)
    with pytest.raises(Damaged, match="in a circle"):
        follow("old", tmp_path / "s.db")
    store.close()


def test_a_password_is_not_written_down() -> None:
    mine = "postgresql+psycopg://ann:secret@host/fixes"
    assert without_password(mine) == "postgresql+psycopg://ann@host/fixes"
    assert with_password("postgresql+psycopg://ann@host/new", mine).endswith(
        "//ann:secret@host/new"
    )
    assert without_password("fixes.db") == with_password("fixes.db", mine) == "fixes.db"
