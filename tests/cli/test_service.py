"""The commands that operate a service."""

from pathlib import Path

from tests.helpers import tpatcher
from tests.service import served
from tests.store.made import patch, spoil
from tpatcher.errors import NotFound, Refused
from tpatcher.models.loading import load
from tpatcher.store.location import successor
from tpatcher.store.store import Store


def test_consolidate_and_undo_it(tmp_path: Path) -> None:
    served.save(tmp_path)
    model, texts, fixes = tmp_path / "model", tmp_path / "texts.txt", tmp_path / "fixes"
    said = served.fitted()[0].answer([served.ASKED])[0]
    right = served.wrong(said)
    fix = ["fix", model, "--patches", fixes, "--traffic", texts, "--text", served.ASKED]
    assert tpatcher(*fix, "--answer", right).exit_code == 0
    store = Store(tmp_path / "s.db", load(model).base)
    store.import_pack(fixes)
    common = ["--traffic", texts, "--retention", "0.5"]
    out = tpatcher("consolidate", model, tmp_path / "new", *common)
    assert "either --store" in str(out.exception)
    out = tpatcher("consolidate", model, tmp_path / "new", "--patches", fixes, *common)
    assert out.exit_code == 0 and "learned 1 fixes" in " ".join(out.output.split()), out.output
    assert tpatcher("answer", tmp_path / "new", served.ASKED).output.strip() == right
    bad = ["consolidate", model, tmp_path / "bad", "--store", tmp_path / "s.db", *common]
    out = tpatcher(*bad, "--retention", "1.1", "--steps", "1")
    assert isinstance(out.exception, Refused) and not (tmp_path / "bad").exists()
    out = tpatcher("consolidate", model, tmp_path / "b", "--store", tmp_path / "s.db", *common)
    assert out.exit_code == 0 and (tmp_path / "b.db").exists()
    assert successor(store) is not None
    out = tpatcher("consolidate", model, "--store", tmp_path / "s.db", "--undo")
    assert out.exit_code == 0 and successor(store) is None
    store.close()


def test_a_store_is_listed_verified_and_repaired(tmp_path: Path) -> None:
    url = tmp_path / "s.db"
    store = Store(url, served.fitted()[0].base)
    for n in (1, 2, 3):
        store.append(patch(n), who="ann")
    store.remove(1, who="bob")
    assert "sound; 2 fixes are live" in tpatcher("store", "verify", url).output
    spoil(store, 2)
    out = tpatcher("store", "verify", url)
    assert out.exit_code == 1 and "fix 2 is damaged (live: undo it): fix 2 is not" in out.output
    assert tpatcher("store", "undo", url, 2).exit_code == 0
    assert store.live_ids() == [3]
    out = tpatcher("store", "verify", url)
    assert out.exit_code == 1 and "fix 2 is damaged (not live" in out.output
    lines = [line.split() for line in tpatcher("store", "log", url).output.splitlines()]
    assert [(line[0], *line[2:4]) for line in lines] == [
        ("1", "append", '"ann"'), ("2", "append", '"ann"'), ("3", "append", "live"),
        ("4", "remove", "1"), ("5", "remove", "2"),
    ]  # fmt: skip
    assert '"question 3"' in tpatcher("store", "log", url).output
    assert isinstance(tpatcher("store", "undo", url, 2).exception, NotFound)
    nowhere = tpatcher("store", "log", tmp_path / "nowhere.db")
    assert isinstance(nowhere.exception, NotFound) and not (tmp_path / "nowhere.db").exists()
    store.close()
