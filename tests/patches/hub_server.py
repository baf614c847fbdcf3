"""A stand-in for the Hugging Face hub on loopback: as much of it as packs need.

Repositories are commits in memory, each a dict of files. It speaks what `huggingface_hub` asks:
create a repository, pre-upload, commit, list a tree, resolve a file.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """The repositories, and who may write: whoever sends the token "secret"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, list[Files]] = {}
        self.private: dict[str, bool] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def oid(number: int) -> str:
    """The commit id of a repository's commit: 40 hex digits."""
    return hashlib.sha1(str(number).encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.say(*self.posted(urlsplit(self.path).path, body))

    def posted(self, path: str, body: bytes) -> tuple[Any, int]:
        """What is done with a request that changes something: the answer, and its status."""
        if path == "/api/validate-yaml":
            return {"warnings": [], "errors": []}, 200
        if self.headers.get("Authorization") != "Bearer secret":
            return {"error": "Invalid username or password."}, 401
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if name in self.server.repos:
                return {"error": "exists", "url": f"{self.server.url}/{name}"}, 409
            # newer clients send a visibility, older ones whether it is private
            private = asked.get("visibility") == "private" or asked.get("private", False)
            self.server.repos[name], self.server.private[name] = [{}], private
            return {"url": f"{self.server.url}/{name}", "name": name, "id": name}, 200
        _, _, _, user, repo, what, _ = path.split("/")  # /api/models/user/name/commit/main
        name = f"{user}/{repo}"
        if what == "preupload":
            files = json.loads(body)["files"]
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            return {"files": [{"path": f["path"], **mode} for f in files]}, 200
        new = dict(self.server.repos[name][-1])
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                new[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del new[line["value"]["path"]]
        self.server.repos[name].append(new)
        at = oid(len(self.server.repos[name]) - 1)
        return {"commitUrl": f"{self.server.url}/{name}/commit/{at}", "commitOid": at}, 200

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(\w+))?", path)
        named = re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path)
        name, revision = (asked[1], asked[3]) if asked else (named[1], named[2]) if named else "??"
        number, files = self.commit(name, revision or "main")
        if files is None:
            self.say({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif named and named[3] in files:
            self.send(200, files[named[3]], self.about(number, files[named[3]]))
        elif asked and asked[2] == "tree":
            self.say([
                {"type": "file", "path": p, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for p, c in files.items()
            ])  # fmt: skip
        else:
            siblings = [{"rfilename": p} for p in files]
            self.say({"id": name, "modelId": name, "sha": oid(number), "siblings": siblings})

    do_HEAD = do_GET  # noqa: N815

    def commit(self, name: str, revision: str) -> tuple[int, Files | None]:
        """A commit of a repository by its number, and its files; None if there is none."""
        commits = self.server.repos.get(name, [])
        numbers = {oid(i): i for i in range(len(commits))} | {"main": len(commits) - 1}
        number = numbers.get(revision, -1)
        return number, commits[number] if commits and number >= 0 else None

    def about(self, number: int, content: bytes) -> dict[str, str]:
        return {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": oid(number)}

    def say(self, answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(answer).encode(), headers or {})

    def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def running() -> Iterator[Hub]:
    """The stand-in, for as long as the block runs."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
