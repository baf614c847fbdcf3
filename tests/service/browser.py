"""A real headless Chromium, driven over its debugging pipe as a person would use it."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-default-apps --remote-debugging-pipe"
)


class Browser:
    """One page in one browser."""

    def __init__(self, into: int, out: int) -> None:
        self.into, self.out, self.buffer, self.count = into, out, b"", 0
        self.session: str | None = None
        self.errors: list[str] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.do("Page.enable")
        self.do("Runtime.enable")

    def do(self, method: str, **params: Any) -> Any:
        """One command of the DevTools protocol, and its result."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                more = os.read(self.out, 1 << 20)
                assert more, "the browser has ended"
                self.buffer += more
            line, _, self.buffer = self.buffer.partition(b"\0")
            found = json.loads(line)
            if found.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(found["params"])[:2000])
            if found.get("id") == self.count:
                assert "error" not in found, found
                return found["result"]

    def open(self, url: str, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.do("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        result = self.do(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, f"{condition} never came true: {self.seen()}"
            time.sleep(0.03)

    def seen(self) -> str:
        return str(self.js("document.body.innerText"))

    def click(self, selector: str) -> None:
        """The left button, on the middle of what can be seen there."""
        where = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def type(self, text: str) -> None:
        self.do("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        text = {"text": {"Enter": "\r"}.get(key, key)} if key == "Enter" or len(key) == 1 else {}
        about = {"key": key, "windowsVirtualKeyCode": code}
        self.do("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.do("Input.dispatchKeyEvent", type="keyUp", **about)

    def give(self, selector: str, file: Path) -> None:
        """Choose a file in an input."""
        root = self.do("DOM.getDocument")["root"]["nodeId"]
        found = self.do("DOM.querySelector", nodeId=root, selector=selector)
        self.do("DOM.setFileInputFiles", files=[str(file)], nodeId=found["nodeId"])

    def picture(self, path: Path) -> None:
        shot = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, ended and removed afterwards."""
    profile = tempfile.mkdtemp(prefix="tpatcher-chromium-")
    (read, into), (out, write) = os.pipe(), os.pipe()
    command = f"exec {FOUND} {FLAGS} --user-data-dir={profile} 3<&{read} 4>&{write}"
    process = subprocess.Popen(
        ["bash", "-c", command], pass_fds=(read, write), stderr=subprocess.DEVNULL
    )
    os.close(read)
    os.close(write)
    try:
        yield Browser(into, out)
    finally:
        os.close(into)
        os.close(out)
        process.terminate()
        process.wait(20)
        shutil.rmtree(profile, ignore_errors=True)
