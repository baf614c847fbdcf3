"""The docs site is built without a warning, and no page of it loads anything from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
ONLY_NAMES = {"canonical", "next", "prev"}  # kinds of <link> that load nothing


class Loaded(HTMLParser):
    """What a page loads by an address that is not its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "link" and named.get("rel") in ONLY_NAMES:
            return
        self.found += [
            value
            for key, value in attrs
            if (tag, key) in LOADS and value and re.match(r"(https?:)?//", value)
        ]


def elsewhere(site: Path) -> list[str]:
    """What the pages and style sheets of a site load from elsewhere."""
    pages = [Loaded(path.read_text()).found for path in site.rglob("*.html")]
    sheets = [
        re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", path.read_text())
        for path in site.rglob("*.css")
    ]
    return [one for found in pages + sheets for one in found]


def test_the_site_is_built_in_strict_mode_and_stands_alone(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra [docs] is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert elsewhere(tmp_path) == []
    assert "push_patches" in (tmp_path / "api" / "index.html").read_text()
    assert (tmp_path / "story" / "index.html").read_text().count("data:image/png") == 3


def test_something_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://x.org">fine</a><link rel="canonical" href="https://x.org">'
        '<script src="//cdn.org/x.js"></script><link rel="stylesheet" href="https://f.org/y.css">'
    )
    (tmp_path / "b.css").write_text('@font-face {src: url("https://f.org/z.woff")}')
    assert sorted(elsewhere(tmp_path)) == [
        "//cdn.org/x.js",
        "https://f.org/y.css",
        "https://f.org/z.woff",
    ]
