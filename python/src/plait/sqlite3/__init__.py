"""Python's sqlite3 module on Plait: the same names, calls and errors, with the library that is inside of this package.

    from plait import sqlite3

    db = sqlite3.connect("app.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=concurrent")

plait.install() makes `import sqlite3` mean this module. docs/adopt/python.md of the project says what differs.
"""

from .dbapi2 import *  # noqa: F403
