"""Plait: SQLite with many writers, as mappings and as SQL on the same tables.

    import plait

    db = plait.open("app.db")
    users = db.map("users")
    users["ada"] = "countess"
    with db.transaction():
        users["grace"] = "admiral"
        db.execute("UPDATE users SET v = upper(v) WHERE k = ?", ("ada",))

`plait.sqlite3` is Python's sqlite3 module on Plait, install() makes `import sqlite3` mean that, retry() runs a transaction again that was refused for a conflict, and
`plait.django` is an ENGINE. The library is inside; the `sqlite3` module of Python has its own, and the two must not have one database open in one process.
docs/key-value.md and docs/adopt/python.md of the project have all of it.
"""

import importlib

from ._plait import Busy, Conflict, ConstraintError, Error, Interrupted, sqlite_version
from ._plait import version as __version__
from .codecs import Codec
from .database import Database, open
from .installing import install
from .mapping import ABSENT, Map
from .retrying import begin, is_retryable, retry

__all__ = [
    "ABSENT",
    "Busy",
    "Codec",
    "Conflict",
    "ConstraintError",
    "Database",
    "Error",
    "Interrupted",
    "Map",
    "begin",
    "install",
    "is_retryable",
    "open",
    "retry",
    "sqlite_version",
]


def __getattr__(name):
    """Modules that are imported when they are first named."""
    if name in ("sqlite3", "dbm"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
