"""Plait: SQLite with many writers, as mappings and as SQL on the same tables.

    import plait

    db = plait.open("app.db")
    users = db.map("users")
    users["ada"] = "countess"
    with db.transaction():
        users["grace"] = "admiral"
        db.execute("UPDATE users SET v = upper(v) WHERE k = ?", ("ada",))

The library is inside; the `sqlite3` module of Python has its own, and the two must not have one database open in one process.
docs/key-value.md of the project has all of it.
"""

from ._plait import Busy, Conflict, ConstraintError, Error, Interrupted, sqlite_version
from ._plait import version as __version__
from .codecs import Codec
from .database import Database, open
from .mapping import ABSENT, Map

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
    "open",
    "sqlite_version",
]
