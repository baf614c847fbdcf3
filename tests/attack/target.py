"""The service as an attacker meets it: a process with tokens, on a real port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.service.served import Process
from tpatcher.service.auth import ROLES, issue

RUN = """
import sys
from tpatcher.service import serve
from tpatcher.service.limits import Limits
limits = Limits(rate=1e6, burst=10**6, fixes_a_day=10**6)
serve(
    sys.argv[1], port=int(sys.argv[2]), store=sys.argv[3], traffic=sys.argv[4],
    tokens=sys.argv[5], drain=5, limits=limits,
)
"""


class Target(Process):
    """A service whose every role is known to the attacker, so that each can be tried."""

    def __init__(self, saved: Path, store: str, code: str = RUN) -> None:
        self.tokens = tokens(saved)
        super().__init__(saved, store, code, str(saved / "tokens.jsonl"))
        self.http = httpx.Client(base_url=self.address, timeout=60)

    def call(self, role: str | None, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """A request by a role, or by nobody."""
        headers = dict(more.pop("headers", {}))
        if role is not None:
            headers["Authorization"] = f"Bearer {self.tokens[role]}"
        return self.http.request(method, path, json=body, headers=headers, **more)

    def say(self, text: str) -> str:
        found = self.call("answer", "POST", "/v1/answer", {"text": text})
        return str(found.json()["answers"][0]["answer"])

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def resident(self) -> int:
        """The bytes of memory that the process has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def said(self) -> str:
        """What the process has written."""
        return Path(self.log.name).read_text()

    def stop(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.end()
        self.log.close()

    @contextmanager
    def raw(self, data: bytes = b"") -> Iterator[socket.socket]:
        """A bare connection on which this was sent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as one:
            one.sendall(data)
            yield one

    def status_of(self, data: bytes) -> int | None:
        """The status that a bare request gets; None if the connection is closed without one."""
        got = b""
        with suppress(OSError), self.raw(data) as one:  # closed at once: no longer connected, too
            one.shutdown(socket.SHUT_WR)
            while b"\r\n" not in got and (more := one.recv(65536)):
                got += more
        return int(got.split()[1]) if got else None


def tokens(saved: Path) -> dict[str, str]:
    """The secrets of all roles, made once; kept beside the file of their hashes."""
    secrets = saved / "secrets"
    if not secrets.exists():
        made = [issue(saved / "tokens.jsonl", role, role) for role in ROLES]
        secrets.write_text("\n".join(made))
    return dict(zip(ROLES, secrets.read_text().split("\n"), strict=True))
