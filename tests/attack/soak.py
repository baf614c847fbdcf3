"""What a soak does to two replicas, and how it knows what they should say."""

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from tests import zoo
from tests.attack.target import Target
from tests.service import served
from tests.service.served import until, wrong
from tpatcher.store.store import Store

MISTAKES = 120  # texts that are fixed and undone
OFFLINE = (httpx.TransportError,)  # a replica was killed: nobody knows what it did
ASKED = 8  # texts in one request
RECENT = 1000  # questions that a replica keeps
NASTY = [b"[" * 20_000, b'{"texts": [' + b"1," * 100_000 + b"1]}", b"\xff\xfe", b'{"text": 5}']


class Soak:
    """Two replicas under mixed load, and a ledger of what they have acknowledged."""

    def __init__(self, saved: Path, url: str) -> None:
        self.saved, self.url = saved, url
        self.base, _ = served.fitted()
        self.controls = list(served.texts())  # the memory: no fix may change them
        draw = random.Random(1)
        words = [" ".join(draw.choices(zoo.WORDS, k=7)) for _ in range(MISTAKES)]
        self.mistakes = [w for w in dict.fromkeys(words) if w not in self.controls]
        asked = [*self.controls, *self.mistakes]
        self.said = dict(zip(asked, self.base.answer(asked), strict=True))
        self.acknowledged: dict[int, str] = {}  # the text of every fix that was
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._locks = {text: threading.Lock() for text in self.mistakes}
        self._calm = threading.Event()
        self._changing = ReadWrite()
        self.replicas: list[Target] = []

    def __enter__(self) -> Self:
        self.replicas = [Target(self.saved, self.url).ready() for _ in range(2)]
        return self

    def __exit__(self, *error: object) -> None:
        for one in self.replicas:
            one.stop()

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Clients of all sorts, until the block ends."""
        self._calm.clear()
        work: list[Callable[[random.Random, Target], None]]
        work = [self._ask, self._ask, self._fix, self._fix, self._undo, self._annoy]
        threads = [
            threading.Thread(target=self._loop, args=(one, seed)) for seed, one in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._calm.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads), "a client waits without end"

    def warm_up(self) -> None:
        """Everything on each replica by itself: the room it has worked in it may keep."""
        draw = random.Random(2)
        for one in self.replicas:
            for _ in range(RECENT // ASKED + 1):
                self._ask(draw, one)
            for _ in range(3):
                self._fix(draw, one)
                self._annoy(draw, one)

    def kill(self, which: int, how: int) -> None:
        """End a replica and start it again."""
        old = self.replicas[which]
        old.process.send_signal(how)
        old.process.wait(60)
        old.log.close()  # its connections stay open: others may be about to use them
        self.replicas[which] = Target(self.saved, self.url)
        self.replicas[which].ready()

    def rollback(self, to: int | None = None) -> None:
        """Go back a few entries, or to one of them, while nobody else changes anything."""
        with self._changing.alone():
            while True:
                one = random.choice(self.replicas)
                try:
                    head = one.call("admin", "GET", "/v1/fixes").json()["head"]
                    body = {"to": max(0, head - 3) if to is None else to}
                    if one.call("admin", "POST", "/v1/rollback", body).status_code == 200:
                        self.counts["rolled back"] += 1
                        return
                except (*OFFLINE, KeyError):
                    pass
                time.sleep(0.2)

    def compare(self) -> None:
        """Everything acknowledged is in the log, and both replicas say what the log says."""
        store = Store(self.url, self.base.base)
        try:
            fixes = {fix.id: fix.example for fix in store.fixes()}
            for number, text in self.acknowledged.items():
                example = fixes.get(number)
                if example is None or example.text != text:
                    self.problems.append(f"fix {number} of {text!r} was acknowledged and is lost")
            assert store.verify() == {}
            live, expected = store.live_ids(), self.base.twin()
            expected.set_patches(store.live())
        finally:
            store.close()
        asked = list(self.said)
        right = expected.answer(asked)
        for example in (fixes[i] for i in live):
            assert example is not None
            if not expected.correct([example])[0]:
                self.counts["hold no longer"] += 1  # what an undo of another fix may do, and says
        for one in self.replicas:
            until(lambda one=one: self._ids(one) == live)  # type: ignore[misc]
            answers = [a for n in range(0, len(asked), 60) for a in _ask(one, asked[n : n + 60])]
            for text, is_, should in zip(asked, answers, right, strict=True):
                if is_ != should:
                    self.problems.append(f"{text!r} was answered {is_!r}, not {should!r}")

    def _ids(self, one: Target) -> list[int]:
        found = one.call("admin", "GET", "/v1/fixes?limit=1000").json()
        return sorted(fix["id"] for fix in found.get("fixes", ()) if fix["live"])

    def _loop(self, work: Callable[[random.Random, Target], None], seed: int) -> None:
        draw = random.Random(time.monotonic_ns() + seed)
        while not self._calm.is_set():
            try:
                work(draw, draw.choice(self.replicas))
            except OFFLINE:
                self.counts["offline"] += 1
                time.sleep(0.05)
            except Exception as error:
                self.problems.append(f"{work.__name__}: {error!r}")
                time.sleep(0.5)

    def _ask(self, draw: random.Random, one: Target) -> None:
        """Questions that no fix may touch."""
        asked = draw.sample(self.controls, ASKED)
        answers = _ask(one, asked)
        self.counts["answers"] += len(asked)
        for text, answer in zip(asked, answers, strict=True):
            if answer != self.said[text]:
                self.problems.append(f"control {text!r} was answered {answer!r}")

    def _fix(self, draw: random.Random, one: Target) -> None:
        """A fix, asked for until it is acknowledged; then the next answer is right."""
        text, key = draw.choice(self.mistakes), uuid.uuid4().hex
        if not self._locks[text].acquire(blocking=False):
            return
        body = {"text": text, "answer": wrong(self.said[text])}
        try:
            with self._changing.together():
                for _ in range(100):
                    try:
                        found = one.call(
                            "fix", "POST", "/v1/fixes", body, headers={"Idempotency-Key": key}
                        )
                    except OFFLINE:  # maybe it was made: the same key tells
                        found = None
                    if found is not None and found.status_code not in (429, 503):
                        break
                    time.sleep(0.1)
                    one = draw.choice(self.replicas)
                else:
                    return
                assert found.status_code != 500, one.said()[-2000:]
                kind = found.json().get("error", {}).get("type", "fixed")
                self.counts[kind] += 1
                if found.status_code not in (200, 201):
                    assert found.status_code in (409, 422), found.text
                    return
                self.acknowledged[found.json()["id"]] = text
                if (now := one.say(text)) != body["answer"] and found.json()["live"]:
                    self.problems.append(f"{text!r} was fixed and then answered {now!r}")
        finally:
            self._locks[text].release()

    def _undo(self, draw: random.Random, one: Target) -> None:
        """One of the fixes is undone."""
        time.sleep(0.15)
        with self._changing.together():
            known = [i for i, text in list(self.acknowledged.items()) if text in self._locks]
            if not known:
                return
            number = draw.choice(known)
            with self._locks[self.acknowledged[number]]:
                found = one.call("fix", "DELETE", f"/v1/fixes/{number}")
                assert found.status_code in (200, 404, 409, 429, 503), found.text
                self.counts["undone"] += found.status_code == 200

    def _annoy(self, draw: random.Random, one: Target) -> None:
        """Bodies that make no sense, half requests, dry runs, reports."""
        body = draw.choice(NASTY)
        headers = {"Authorization": f"Bearer {one.tokens['fix']}"}
        found = one.http.post("/v1/fixes", content=body, headers=headers)
        assert found.status_code == 422, found.text
        with one.raw(b"POST /v1/answer HTTP/1.1\r\nHost: a\r\nContent-Le"):
            pass
        dry: dict[str, Any] = {"text": draw.choice(self.mistakes), "answer": "no", "dry_run": True}
        dry["rephrasings"] = draw.sample(self.controls, 16)
        found = one.call("fix", "POST", "/v1/fixes", dry)
        assert found.status_code in (200, 409, 422, 429, 503), found.text
        found = one.call("report", "POST", "/v1/reports", {"text": "is it ?"})
        assert found.status_code in (201, 429, 503), found.text
        self.counts["annoyed"] += 1
        time.sleep(0.3)


def _ask(one: Target, texts: list[str]) -> list[str]:
    found = one.call("answer", "POST", "/v1/answer", {"texts": texts})
    assert found.status_code in (200, 429), found.text
    return [a["answer"] for a in found.json()["answers"]]


class ReadWrite:
    """Many together, or one alone."""

    def __init__(self) -> None:
        self._inside, self._condition = 0, threading.Condition()

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._condition:
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._condition:  # nobody comes in while this is held
            self._condition.wait_for(lambda: not self._inside, timeout=120)
            yield
