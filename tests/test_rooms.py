"""The rooms of the package: the folders, the table in docs/design.md and the import contract."""

import re
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def on_disk() -> set[str]:
    """The folders ("nets/") and the files ("errors.py") of the package."""
    package = ROOT / "tpatcher"
    folders = {f"{p.name}/" for p in package.iterdir() if (p / "__init__.py").exists()}
    return folders | {p.name for p in package.glob("*.py") if p.name != "__init__.py"}


def in_the_design() -> list[list[str]]:
    """The names in the first column of the table of rooms, row by row."""
    text = (ROOT / "docs" / "design.md").read_text()
    table = re.search(r"^## Rooms\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    assert table is not None
    rows = re.findall(r"^\|([^|]+)\|", table[1], re.M)
    return [names for row in rows if (names := re.findall(r"`([\w/.]+)`", row))]


def in_the_contract() -> list[list[str]]:
    """The layers of .importlinter, each as the names that stand beside each other in it."""
    contract = ConfigParser()
    contract.read(ROOT / ".importlinter")
    layers = contract["importlinter:contract:rooms"]["layers"].strip().splitlines()
    return [re.findall(r"tpatcher\.(\w+)", layer) for layer in layers]


def module(room: str) -> str:
    """ "nets/" is the module nets, "errors.py" is errors."""
    return room.strip("/").removesuffix(".py")


def test_every_room_has_a_row_in_the_design() -> None:
    found = [room for row in in_the_design() for room in row]
    assert sorted(found) == sorted(on_disk())


def test_every_room_has_a_layer_in_the_contract() -> None:
    layers = [room for layer in in_the_contract() for room in layer]
    assert sorted(layers) == sorted(map(module, on_disk()))


def test_the_design_lists_the_rooms_in_the_order_of_the_contract() -> None:
    """Imports only go down the table."""
    depth = {room: i for i, layer in enumerate(in_the_contract()) for room in layer}
    listed = [depth[module(room)] for row in in_the_design() for room in row]
    assert listed == sorted(listed)


def test_every_folder_says_first_which_question_it_answers() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    asked = dict(re.findall(r"^\| `(\w+/)` \| ([^|?]+\?)", text, re.M))
    for file in (ROOT / "tpatcher").rglob("*/__init__.py"):
        first = file.read_text().splitlines()[0]
        room = f"{file.parent.name}/"
        wanted = asked.get(room, "?") if file.parent.parent.name == "tpatcher" else "?"
        assert wanted.lower() in first.lower(), file


def walks() -> dict[str, list[Path]]:
    """The files of each walk in docs/design.md; a name alone lies beside the one before it."""
    text = (ROOT / "docs" / "design.md").read_text()
    table = re.search(r"^## Four walks\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    assert table is not None
    found: dict[str, list[Path]] = {}
    for title, cell in re.findall(r"^\| `([^|]+)` \|([^|]+)\|$", table[1], re.M):
        files: list[Path] = []
        for name in re.findall(r"`([\w/]+\.py)`", cell):
            beside = files[-1].parent / name if files else None
            files.append(beside if beside and beside.exists() else ROOT / "tpatcher" / name)
        found[title] = files
    return found


def test_every_file_of_a_walk_is_there_and_named_once() -> None:
    assert len(walks()) == 9
    for title, files in walks().items():
        assert [file for file in files if not file.exists()] == [], title
        assert len(files) == len(set(files)), title


def test_a_public_function_is_used_outside_its_file() -> None:
    """What begins with `_` is private to its file, and nothing else is."""
    folders = ("tpatcher", "tests", "speed", "examples")
    texts = {path: path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    files_with = Counter(word for text in texts.values() for word in set(re.findall(r"\w+", text)))
    private = []
    for path in (ROOT / "tpatcher").rglob("*.py"):
        routes = set(re.findall(r'add_api_route\(\s*"[^"]+", (\w+)', texts[path]))
        found = re.findall(r"^(@.*\n)?(?:async )?def ([a-z]\w*)", texts[path], re.M)
        own = {name for decorator, name in found if not decorator and files_with[name] == 1}
        private += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(own - routes)]
    assert private == []


def test_no_file_is_longer_than_350_lines() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in (ROOT / "tpatcher").rglob("*.py")}
    assert {path: n for path, n in lengths.items() if n > 350} == {}
