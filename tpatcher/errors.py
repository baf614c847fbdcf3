"""Everything that tpatcher raises on purpose: one tree, each named for what went wrong."""


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


class NoMemory(TPatcherError):
    """The editor was not fitted, so nothing says which other queries to leave alone."""


class NotFixed(TPatcherError):
    """No patch within the constraints gives the wanted answer; the model is untouched."""


class NotRemovable(TPatcherError):
    """This patch cannot be taken off by itself, because newer ones were made on top of it."""


class WrongBase(TPatcherError):
    """The patches were made for another base model."""


class Damaged(TPatcherError):
    """A file of patches is incomplete or was changed; the message says where."""
