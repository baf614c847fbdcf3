"""A PostgreSQL server of the tests' own, on a socket in a temporary directory."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
BIN = FOUND[-1].parent if FOUND else None


class Server:
    """One cluster; `url` makes a new database in it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.count = directory, 0
        self.run("initdb", "-D", str(directory / "data"), "-U", "tpatcher", "-A", "trust", "-N")
        self.start()

    def run(self, program: str, *args: str) -> None:
        """One of PostgreSQL's programs, which refuse to be run by root."""
        assert BIN is not None
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        subprocess.run(
            [*user, str(BIN / program), *args],
            check=True,
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.directory}"
        log = str(self.directory / "log")
        self.run(
            "pg_ctl", "-D", str(self.directory / "data"), "-l", log, "-o", options, "-w", "start"
        )

    def stop(self, how: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-m", how, "-w", "stop")

    def kill(self) -> None:
        """SIGKILL to the server and all its children; returns when they are gone."""
        pids = self.signal(signal.SIGKILL)
        while any(alive(one) for one in pids):
            time.sleep(0.01)

    def signal(self, number: int) -> list[int]:
        """Send a signal to the server and all its children; returns their process ids."""
        pid = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids = [pid, *map(int, children)]
        for one in pids:
            os.kill(one, number)
        return pids

    def url(self) -> str:
        self.count += 1
        self.run("createdb", "-h", str(self.directory), "-U", "tpatcher", f"db{self.count}")
        return f"postgresql+psycopg://tpatcher@/db{self.count}?host={self.directory}"


def alive(pid: int) -> bool:
    """Whether the process table has it: a zombie too keeps the server's lock file valid."""
    return Path(f"/proc/{pid}").exists()


@contextmanager
def server() -> Iterator[Server]:
    """A running server, stopped and removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="tpatcher-pg-"))  # a socket's path must be short
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    one = Server(directory)
    try:
        yield one
    finally:
        one.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


def running() -> Iterator[Server]:
    """For a fixture: a server, where Debian's package `postgresql` is installed."""
    if BIN is None:
        pytest.skip("PostgreSQL is not installed")
    with server() as one:
        yield one


def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """For a fixture with the parameters "sqlite" and "postgres": where a new store can be."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("store") / "fixes.db")
    found: Server = request.getfixturevalue("postgres")
    return found.url()
