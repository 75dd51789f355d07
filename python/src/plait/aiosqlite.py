"""aiosqlite on plait.sqlite3: what the package aiosqlite has, with connections of this library.

    from plait import aiosqlite

    async with aiosqlite.connect("app.db", isolation_level=None) as db: ...

The errors are those of plait.sqlite3. (After plait.install() the package itself is on this library too, if it is imported later.)
"""

from aiosqlite import Connection, Cursor
from aiosqlite import __version__ as __version__

from . import sqlite3
from .sqlite3 import (
    DatabaseError, Error, IntegrityError, InterfaceError, InternalError, NotSupportedError, OperationalError, ProgrammingError, Row, Warning,
    register_adapter, register_converter, sqlite_version, sqlite_version_info,
)

__all__ = [
    "Connection", "Cursor", "DatabaseError", "Error", "IntegrityError", "InterfaceError", "InternalError", "NotSupportedError", "OperationalError",
    "ProgrammingError", "Row", "Warning", "connect", "register_adapter", "register_converter", "sqlite_version", "sqlite_version_info",
]


def connect(database, *, iter_chunk_size=64, **named):
    """Opens a connection for an event loop; `named` are arguments of plait.sqlite3.connect."""
    return Connection(lambda: sqlite3.connect(database, **named), iter_chunk_size)
