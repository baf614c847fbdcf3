"""A chain moves to a new base: at once, with all that came in meanwhile, and back again."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests import postgres as pg
from tests.checkpoints.fixed_models import EASY, TEXTS
from tests.service import served
from tests.service.served import ASKED, wrong
from tpatcher.checkpoints.consolidate import consolidate
from tpatcher.checkpoints.handover import move
from tpatcher.errors import BadInput, Refused, StaleHead, StoreMoved
from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.store import engine, location
from tpatcher.store.location import follow, learned, successor, undo_move
from tpatcher.store.store import Store

postgres = pytest.fixture(scope="module")(pg.running)
url = pytest.fixture(params=["sqlite", "postgres"])(pg.place)


def fixed(url: str | Path, *texts: str) -> Store:
    """A store with fixes of these texts."""
    model, editor = served.fitted()
    store, worn = Store(url, model.base), model.twin()
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
        with pytest.raises(BadInput, match="give the URL of an empty database"):
            move(model, store, TEXTS, tmp_path / "new", settings=EASY)
    done = move(model, store, TEXTS, tmp_path / "new", place, settings=EASY)
    assert (done.fixed_again, done.to.model) == (0, str(tmp_path / "new"))
    assert follow("old", url) == (done.to.model, done.to.store)
    new = load(done.to.model)
    begun = Store(done.to.store, new.base)
    assert (begun.head, begun.live_ids(), learned(begun)) == (0, [], fixes)
    assert all(new.correct(fixes))
    # the old store is a closed book: no change is taken, and what was live can still be read
    for change in (
        lambda: store.append(store.live()[0]),
        lambda: store.remove(1),
        lambda: store.rollback(0),
        lambda: move(model, store, TEXTS, tmp_path / "other", settings=EASY),
    ):
        with pytest.raises(StoreMoved):
            change()
    assert store.live_ids() == [1, 2] and store.log()[-1].action == "move"
    assert undo_move(store) == 4
    assert follow("old", url) == ("old", url) and store.live_ids() == [1, 2]
    assert store.remove(1) == 5
    store.close()
    begun.close()


def test_fixes_that_come_in_meanwhile_begin_the_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, (model, editor) = fixed(tmp_path / "s.db", ASKED), served.fitted()
    late, asked = list[Example](), ["is it red ?", "where is the cat ?"]
    real, calls = location.record_move, list[object]()

    def slow(*args: object, **more: object) -> int:
        calls.append(more["parent"])
        if len(late) < len(asked):  # somebody fixes one more, just before it is recorded
            worn, text = model.twin(), asked[len(late)]
            worn.set_patches(store.live())
            late.append(Example(text, wrong(worn.answer([text])[0])))
            store.append(editor.edit(worn, late[-1]), who="bob")
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(location, "record_move", slow)
    done = move(model, store, TEXTS, tmp_path / "new", settings=EASY)
    new = load(done.to.model)
    begun = Store(done.to.store, new.base)
    new.set_patches(begun.live())
    assert calls == [1, 2, 3]
    assert all(new.correct([*late, *learned(begun)]))
    assert len(begun.live_ids()) == done.fixed_again <= 2
    store.close()
    begun.close()


def test_a_fix_that_is_undone_meanwhile_stops_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]

    def undone(*args: object, **more: object) -> int:
        store.remove(1)
        raise StaleHead("made for entry 1, but the store is at 2 by now")

    monkeypatch.setattr(location, "record_move", undone)
    with pytest.raises(Refused, match="fix 1 was undone"):
        move(model, store, TEXTS, tmp_path / "new", settings=EASY)
    assert successor(store) is None and not (tmp_path / "new").exists()
    monkeypatch.undo()
    store.rollback(1)
    assert move(model, store, TEXTS, tmp_path / "new", settings=EASY).outcome.fixes == 1
    store.close()


def test_stopped_before_the_entry_nothing_is_left_and_after_it_nothing_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]
    real, late = location.record_move, False

    def stopped(*args: object, **more: object) -> int:
        if late:
            real(*args, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(location, "record_move", stopped)
    with pytest.raises(KeyboardInterrupt):
        move(model, store, TEXTS, tmp_path / "new", settings=EASY)
    assert successor(store) is None and not (tmp_path / "new").exists()
    late = True
    with pytest.raises(KeyboardInterrupt):
        move(model, store, TEXTS, tmp_path / "new", settings=EASY)
    name, place = follow("old", tmp_path / "s.db")
    begun = Store(place, load(name).base)
    assert len(learned(begun)) == 1
    store.close()
    begun.close()


def test_a_new_store_must_be_new(tmp_path: Path) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]
    with pytest.raises(BadInput, match="cannot be the new store"):
        move(model, store, TEXTS, tmp_path / "new", tmp_path / "s.db")
    store.close()


def test_a_move_that_fails_drops_no_table_of_something_else(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = new_place(url, tmp_path, request) or str(tmp_path / "other.db")
    other = engine.connect(place)
    with other.begin() as connection:
        connection.execute(sa.text("CREATE TABLE report (colour TEXT)"))
    store, model = fixed(url, ASKED), served.fitted()[0]
    with pytest.raises(BadInput, match="cannot be the new store"):
        move(model, store, TEXTS, tmp_path / "new", place, settings=EASY)
    with other.connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["report"]
    other.dispose()
    store.close()


def test_a_move_that_fails_drops_no_store_that_appeared_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = fixed(tmp_path / "s.db", ASKED), served.fitted()[0]
    place = tmp_path / "other.db"

    def teach(*args: object, **more: object) -> object:
        made = consolidate(*args, **more)  # type: ignore[arg-type]
        theirs = Store(place, made[0].base)
        theirs.append(store.live()[0])
        theirs.close()
        return made

    monkeypatch.setattr("tpatcher.checkpoints.handover.consolidate", teach)
    with pytest.raises(BadInput, match="tables already"):
        move(model, store, TEXTS, tmp_path / "new", place, settings=EASY)
    assert successor(store) is None and not (tmp_path / "new").exists()
    kept = Store.existing(place)
    assert kept.live_ids() == [1]
    kept.close()
    store.close()
