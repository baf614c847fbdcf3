"""The rooms of the package: the folders, the table in docs/design.md and the import contract."""

import re
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
