"""Who may do what: bearer tokens with roles, of which only hashes are kept."""

import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tpatcher import files
from tpatcher.errors import BadInput, Denied, unknown

LOG = logging.getLogger("tpatcher.service")
Role = Literal["answer", "report", "fix", "admin"]
ROLES: tuple[Role, ...] = ("answer", "report", "fix", "admin")  # each may do what those before may


@dataclass(frozen=True)
class Caller:
    """Who asks, and what they may do."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the caller's role includes this one."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class Token:
    """One line of the file of tokens. A token is 256 random bits, so a plain hash is enough."""

    name: str
    role: Role
    sha256: str


class Access:
    """The tokens that are known. Without any, every caller is an admin.

    Those of a file are read again when it changes, so a line that is added or taken out counts at
    once. A file that is gone or damaged changes nothing: nobody is let in or out by accident.
    """

    def __init__(self, tokens: Sequence[Token] = (), file: Path | None = None) -> None:
        self.tokens, self._file = list(tokens), file
        self._seen = _state(file)

    @classmethod
    def read(cls, path: str | Path) -> "Access":
        """The tokens of a file that `issue` wrote."""
        return cls(cls._parsed(Path(path)), Path(path))

    @staticmethod
    def _parsed(file: Path) -> list[Token]:
        tokens = []
        if not file.is_file():
            raise BadInput(f"there is no file of tokens at {file}; `tpatcher token` writes one")
        for number, line in enumerate(file.read_text().splitlines(), 1):
            try:
                token = Token(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise BadInput(f"{file}:{number}: not a token: {error}") from error
            if token.role not in ROLES or len(token.sha256) != 64:
                raise BadInput(f"{file}:{number}: needs a role of {', '.join(ROLES)} and a sha256")
            tokens.append(token)
        if not tokens:
            raise BadInput(f"{file} holds no token, so nobody could use the service")
        return tokens

    def _renew(self) -> None:
        """Read the file again if it has changed since it was read."""
        now = _state(self._file)
        if self._file is None or now == self._seen:
            return
        self._seen = now
        try:
            self.tokens = self._parsed(self._file)
            LOG.info("the tokens were read again: %d", len(self.tokens))
        except (BadInput, OSError, UnicodeDecodeError) as error:
            LOG.error("the tokens stay as they were: %r", str(error))

    def caller(self, secret: str | None) -> Caller:
        """The caller who holds this token; raises `Denied` if nobody is known by it."""
        self._renew()
        if not self.tokens:
            return Caller("local", "admin")
        if secret is None:
            raise Denied("this service needs a token: send 'Authorization: Bearer …'")
        digest = hashlib.sha256(secret.strip().encode()).hexdigest()
        found = None
        for token in self.tokens:  # compare with every token: constant time
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None:
            raise Denied("this service does not know this token")
        return Caller(found.name, found.role)


def _state(file: Path | None) -> tuple[int, int, int] | None:
    """What changes with a file."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found else None


def issue(path: str | Path, name: str, role: Role) -> str:
    """Make a token, add its hash to the file, and return it; it cannot be shown again."""
    if role not in ROLES:
        raise unknown("role", role, ROLES)
    if not name.strip() or not name.isprintable():
        raise BadInput(f"a token needs a printable name, not {name!r}")
    file, secret = Path(path), secrets.token_urlsafe(32)
    before = Access.read(file).tokens if file.exists() else []
    if any(t.name == name for t in before):
        raise BadInput(f"{file} has a token for {name!r} already; take its line out first")
    token = Token(name, role, hashlib.sha256(secret.encode()).hexdigest())
    lines = [json.dumps(asdict(t)) for t in (*before, token)]
    files.write_atomic(file, ("\n".join(lines) + "\n").encode(), mode=0o600)
    return secret


def is_loopback(host: str) -> bool:
    """Whether a host's name or address can only be reached from this machine."""
    name = host.strip().lower()
    if name.startswith("["):  # [::1]:8000
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
