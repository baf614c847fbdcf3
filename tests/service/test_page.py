"""The page, in a real browser, as a person would use it."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import chat
from tests.service import browser as chromium
from tests.service import served
from tests.service.browser import Browser
from tests.service.served import ASKED, texts, wrong
from tests.store.made import patch
from tpatcher.editors import TPatcher
from tpatcher.service.app import create_app
from tpatcher.service.auth import Access, issue
from tpatcher.service.guard import Rules
from tpatcher.service.live import Deployment
from tpatcher.store.store import Store

pytestmark = pytest.mark.skipif(chromium.FOUND is None, reason="Chromium is not installed")
# Where to leave screenshots, for those who want to look at them.
PICTURES = os.environ.get("TPATCHER_PICTURES")


@pytest.fixture(scope="module")
def one() -> Iterator[Browser]:
    with chromium.browser() as found:
        yield found


def look(one: Browser, name: str) -> None:
    assert one.js("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    if PICTURES:
        one.picture(Path(PICTURES) / f"{name}.png")


def ask(one: Browser) -> None:
    """Ask the question of all these tests, and wait for its answer."""
    one.click("#text")
    one.type(ASKED)
    one.press("Enter", 13)
    one.wait("!document.querySelector('#said').hidden")


def test_ask_fix_and_undo_on_the_page(one: Browser, tmp_path: Path) -> None:
    before = served.fitted()[0].answer([ASKED])[0]
    with served.listening(served.app(tmp_path / "s.db")) as address:
        one.open(address)
        one.wait("document.querySelector('#about')?.textContent.includes('classifier')")
        look(one, "empty")
        ask(one)
        assert one.js("answer.textContent") == before
        assert "no fix fired" in one.seen()
        one.click("#wrong")
        one.js(f"document.querySelector('#label').value = {wrong(before)!r}")
        one.click("#try")
        one.wait("!document.querySelector('#effect').hidden")
        assert "All 40 protected examples keep their answers" in one.seen()
        assert "All earlier fixes still hold" in one.seen()
        look(one, "dry-run")
        one.wait("document.activeElement.id === 'apply'")
        one.press("Enter", 13)  # by keyboard: the button has the focus
        one.wait(f"answer.textContent === {wrong(before)!r}")
        one.wait("why.textContent.includes('fix 1')")
        one.wait("document.querySelectorAll('#heat rect').length > 0")
        one.wait("document.querySelector('#fixes button')")
        look(one, "fixed")
        one.click("#fixes button")
        one.wait("document.querySelector('#fixes .off')")
        one.click("#ask button")
        one.wait(f"answer.textContent === {before!r}")
    assert not one.errors


def test_a_report_goes_through_the_queue(one: Browser, tmp_path: Path) -> None:
    nasty = "<img src=x onerror=document.title='hacked'> is red ?"
    with served.listening(served.app(tmp_path / "s.db")) as address:
        one.open(address)
        one.wait("document.querySelector('#about')?.textContent.includes('classifier')")
        one.click("#text")
        one.type(nasty)
        one.click("#ask button")
        one.wait("!document.querySelector('#said').hidden")
        one.click("#wrong")
        one.click("#queue-it")
        one.wait("document.querySelectorAll('#queue button').length === 2")
        assert nasty in one.seen() and one.js("document.title") == "tpatcher"
        one.click("#queue button")
        one.click("#try")
        one.wait("!document.querySelector('#effect').hidden || "
                 "document.querySelector('#fix-error').textContent")  # fmt: skip
        assert one.js("document.querySelector('#fix-error').textContent") == ""
        one.click("#apply")
        one.wait("document.querySelector('#queue').textContent.includes('Nothing is waiting')")
    assert not one.errors


def test_the_guards_reasons_are_shown(one: Browser, tmp_path: Path) -> None:
    with served.listening(
        served.app(tmp_path / "s.db", rules=Rules(max_firing_share=-1.0))
    ) as address:
        one.open(address)
        one.wait("document.querySelector('#about')?.textContent.includes('classifier')")
        ask(one)
        one.click("#wrong")
        one.click("#try")
        one.wait("!document.querySelector('#effect').hidden")
        assert "The guard would refuse this" in one.seen()
        assert one.js("document.querySelector('#apply').hidden")
        look(one, "refused")
    assert not one.errors


@pytest.mark.parametrize("name, width, dark", [("phone", 390, False), ("dark", 1100, True)])
def test_a_busy_page_fits(
    one: Browser, tmp_path: Path, name: str, width: int, dark: bool
) -> None:  # fmt: skip
    with served.listening(served.app(tmp_path / "s.db", "gpt2", canaries=5)) as address:
        for text in ("who wrote hamlet ?", "where is paris ?", "what is the capital of peru ?"):
            body = {"text": text, "answer": "william shakespeare"}
            httpx.post(f"{address}/v1/fixes", json=body, timeout=60)
        httpx.post(f"{address}/v1/fixes", json={"text": "red", "answer": "purple"}, timeout=60)
        httpx.delete(f"{address}/v1/fixes/2")
        httpx.post(f"{address}/v1/reports", json={"text": "is the river green ?", "said": "one"})
        httpx.post(f"{address}/v1/answer", json={"texts": [ASKED, *texts()[:20]]}, timeout=60)
        one.open(address, width=width, height=1500, dark=dark)
        one.wait("document.querySelectorAll('#heat rect').length > 20")
        ask(one)
        look(one, name)
    assert not one.errors


def test_a_conversation_under_a_system_prompt_is_fixed(one: Browser, tmp_path: Path) -> None:
    model = chat.chat()
    editor = TPatcher().fit(model, list(texts()[:20]))
    app = create_app(Deployment.of(model, editor, Store(tmp_path / "s.db", model.base)))
    with served.listening(app) as address:
        one.open(address, height=1400)
        one.wait("document.querySelector('#system-part')?.hidden === false")
        one.js("document.querySelector('#system-part').open = true")
        one.click("#system")
        one.type("Be brief.")
        for asked in ("Who wrote it?", "And when?"):
            one.click("#text")
            one.type(asked)
            one.press("Enter", 13)
            one.wait(f"document.querySelector('#asked').textContent === {asked!r}")
        one.wait("document.querySelectorAll('#turns li').length === 2")
        one.click("#wrong")
        assert "In this conversation: system: Be brief. · user: Who wrote it?" in one.seen()
        one.click("#right")
        one.type("1603")
        one.click("#try")
        one.wait("!document.querySelector('#effect').hidden || "
                 "document.querySelector('#fix-error').textContent")  # fmt: skip
        assert one.js("document.querySelector('#fix-error').textContent") == ""
        look(one, "conversation")
        one.click("#apply")
        one.wait("answer.textContent === '1603'")
        one.wait("document.querySelector('#fixes').textContent.includes('And when?')")
        one.click("#wrong")
        one.click("#queue-it")  # a report says in which conversation it was
        one.wait("document.querySelector('#queue').textContent.includes('user: Who wrote it?')")
        one.click("#anew")
        one.wait("document.querySelector('#turns').hidden")
    assert not one.errors


def test_many_fixes_are_searched_and_turned_over(one: Browser, tmp_path: Path) -> None:
    model = served.fitted()[0]
    store = Store(tmp_path / "s.db", model.base)
    store.append_many(patch(n) for n in range(120))
    store.rollback(0)
    store.close()
    rows = "document.querySelectorAll('#fixes li').length"
    with served.listening(served.app(tmp_path / "s.db")) as address:
        one.open(address, height=1400)
        one.wait(f"{rows} === 50 && !document.querySelector('#pages').hidden")
        one.wait("document.body.innerText.includes('Nothing has happened yet.')")  # all is there
        assert "0 live of 120" in one.seen() and "question 119" in one.seen()
        for _ in range(2):
            before = one.js("document.querySelector('#fixes li').textContent")
            one.click("#older")
            one.wait(f"document.querySelector('#fixes li').textContent !== {before!r}")
        one.wait(f"{rows} === 20 && document.querySelector('#older').disabled")
        one.click("#newer")
        one.wait(f"{rows} === 50")
        one.press("/", 191)  # by keyboard
        one.wait("document.activeElement.id === 'search'")
        one.type("question 7")
        one.wait(f"{rows} === 11")  # 7, and 70 to 79
        look(one, "search")
        one.click("#live-only")
        one.wait("document.querySelector('#fixes').textContent === 'Nothing is found.'")
    assert not one.errors


def test_a_file_of_corrections_is_imported_and_fixes_are_exported(
    one: Browser, tmp_path: Path
) -> None:
    before = served.fitted()[0].answer([ASKED])[0]
    lines = [f'"text {n}, with ""quotes""\nand a break",yes' for n in range(250)]
    bad = ["too,many,cells", "no answer,"]
    file = tmp_path / "corrections.csv"
    file.write_text("\n".join(["question,answer", *lines, *bad, f"{ASKED},{wrong(before)}"]))
    with served.listening(served.app(tmp_path / "s.db")) as address:
        one.open(address, height=1400)
        one.wait("document.querySelector('#about')?.textContent.includes('classifier')")
        one.js("document.querySelector('#import').open = true")
        one.give("#file", file)
        one.wait("document.querySelector('#imported').textContent.includes('251 reports added')")
        assert "2 bad rows" in one.seen() and "row 252: 3 cells, but 2 columns" in one.seen()
        one.wait("document.querySelector('#queue-count').textContent === '251 waiting'")
        look(one, "imported")
        body = {"text": ASKED, "answer": wrong(before)}
        httpx.post(f"{address}/v1/fixes", json=body, timeout=60)
        one.wait("!document.querySelector('#export').hidden")
        one.js("""window.saved = []; HTMLAnchorElement.prototype.click = function () {};
            URL.createObjectURL = blob => { blob.text().then(t => saved.push(t)); return '#'; }""")
        one.click("#export button:last-child")
        one.wait("saved.length === 1")
        assert one.js("saved[0]") == f"question,answer\n{ASKED},{wrong(before)}\n"
    assert not one.errors


def test_a_thumb_down_is_enough_for_a_proposal(one: Browser, tmp_path: Path) -> None:
    before = served.fitted()[0].answer([ASKED])[0]
    with served.listening(served.app(tmp_path / "s.db")) as address:
        one.open(address, height=1400)
        one.wait("document.querySelector('#about')?.textContent.includes('classifier')")
        ask(one)
        one.click("#wrong")
        one.js("document.querySelector('#ways').value = 'hamlet was wrote ?'")
        one.click("#propose")
        one.wait("!document.querySelector('#effect').hidden")
        assert "Asked in other words" in one.seen() and "hamlet was wrote ?" in one.seen()
        look(one, "proposal")
        one.click("#apply")
        one.wait("document.querySelector('#why').textContent.includes('fix 1')")
        assert one.js("answer.textContent") != before
        one.wait("document.querySelector('#fixes summary')")
        one.click("#fixes summary")
        one.wait("document.querySelector('#fixes .checked')")
        assert "protected examples keep their answers" in one.seen()
        look(one, "checked")
    assert not one.errors


def test_a_token_is_asked_for(one: Browser, tmp_path: Path) -> None:
    secret = issue(tmp_path / "t", "ann", "report")
    access = Access.read(tmp_path / "t")
    with served.listening(served.app(tmp_path / "s.db", access=access)) as address:
        one.open(address)
        one.wait("document.querySelector('#token')?.open")
        one.click("#secret")
        one.type(secret)
        one.press("Enter", 13)
        one.wait("document.querySelector('#about').textContent.includes('classifier')")
        ask(one)
        one.click("#wrong")
        assert one.js("document.querySelector('#try').hidden")  # ann may report, not fix
        one.click("#queue-it")
        one.wait("document.querySelector('#mend').hidden")
        asker = issue(tmp_path / "t", "bob", "answer")  # the file is read again when it changes
        one.js(f"sessionStorage.setItem('token', {asker!r})")
        one.wait("document.querySelector('#wrong').hidden")  # bob may only ask
        one.js("sessionStorage.clear()")
    assert not one.errors
