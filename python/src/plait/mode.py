"""Bringing a database into concurrent mode, through a connection of plait.sqlite3."""

import time

from .retrying import is_retryable

# The modes of databases that have no file of their own, which nobody else writes.
_PRIVATE = ("memory", "off")


def make_concurrent(connection, timeout=10.0):
    """Brings the main database of a connection into concurrent mode, once for ever, unless it is in memory; its journal mode.

    Who is first changes the file, and others who open it at that moment are told that it is locked: they ask again, until `timeout` seconds have gone by.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            (now,) = connection.execute("PRAGMA journal_mode").fetchone()
            if now != "concurrent" and now not in _PRIVATE:
                (now,) = connection.execute("PRAGMA journal_mode=concurrent").fetchone()
            return now
        except Exception as e:
            if not is_retryable(e) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
