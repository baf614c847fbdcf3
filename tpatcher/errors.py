"""Everything that tpatcher raises on purpose: one tree, each named for what went wrong."""

from collections.abc import Iterable
from difflib import get_close_matches


class TPatcherError(Exception):
    """The root: catch this to catch everything below."""


class BadInput(TPatcherError, ValueError):
    """The caller's text, label, file or setting cannot be used; the message says what can."""


class UnsupportedArchitecture(TPatcherError):
    """This model has no feed-forward layer, task or head that a patch could work on."""


class AlreadyRight(TPatcherError):
    """The model gives the wanted answer already, so there is nothing to fix."""


class Conflict(TPatcherError):
    """The same text was fixed to another answer before."""


class NotFitted(TPatcherError):
    """The editor was not fitted, so nothing says which other queries to leave alone."""


class NotFixed(TPatcherError):
    """No patch within the constraints gives the wanted answer; the model is untouched."""


class NotExported(TPatcherError):
    """A checkpoint would not answer as the patched model does; nothing was written."""


class NotRemovable(TPatcherError):
    """This patch cannot be taken off by itself, because newer ones were made on top of it."""


class WrongBase(TPatcherError):
    """The patches, or the memory, were made for another base model."""


class Damaged(TPatcherError):
    """A file that was kept is incomplete or was changed; the message says where."""


class StaleHead(TPatcherError):
    """The store has changed since the patch was made; make it again for what is live now."""


class StoreMoved(StaleHead):
    """The store's chain goes on in another store, on a base model that has learned its fixes."""


class NotStored(TPatcherError):
    """The store could not keep what it was given (disk full, no connection); nothing changed."""


class Refused(TPatcherError):
    """A check kept a fix, or a new base, from going live; the reasons say why."""

    def __init__(self, message: str, verdict: object = None) -> None:
        super().__init__(message)
        self.verdict = verdict


class Busy(TPatcherError):
    """Too much is asked at once; the same request will do later."""

    def __init__(self, message: str, after: float = 1.0) -> None:
        super().__init__(message)
        self.after = after  # seconds until it is worth trying again


class Denied(TPatcherError):
    """The caller is unknown, or is known and may not do this."""

    def __init__(self, message: str, known: bool = False) -> None:
        super().__init__(message)
        self.known = known


class NotFound(TPatcherError):
    """There is no fix or report of this number."""


def unknown(what: str, asked: str, available: Iterable[str]) -> BadInput:
    """The error for a name that is not among those available, with the closest one as a hint.

    >>> print(unknown("editor", "t-pacher", ["t-patcher", "mend"]))
    unknown editor 't-pacher'. Did you mean 't-patcher'? Available: t-patcher, mend
    """
    names = list(available)
    folded = {name.lower(): name for name in names}
    close = get_close_matches(asked.strip().lower(), folded, 1)
    hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
    return BadInput(f"unknown {what} {asked!r}.{hint} Available: {', '.join(names)}")
